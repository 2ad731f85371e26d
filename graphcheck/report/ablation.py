"""Owns how an ablation looks in a terminal: fixes by cells, the finding on each fix, the hang as a story."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphcheck.harness.judging.findings import ablation_exit_code, baseline, find, red_baseline
from graphcheck.harness.records.run_folder import Run
from graphcheck.harness.records.summary import summarize
from graphcheck.report import words
from graphcheck.report.explain import explain
from graphcheck.report.rerun import rerun_lines
from graphcheck.report.terminal import RED, print_line, style_of
from graphcheck.schema.ablation import CellEffect, FixFinding
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.verdicts import Verdict


def render_ablation(run: Run, console: Console) -> ExitCode:
    """Prints an ablation, its exit code in words on the last line, and returns that code."""
    for note in run.notes:
        print_line(console, note, "yellow")
    print_line(console, words.title(run.info, str(run.path)), "bold")
    code = ablation_exit_code(run.info, run.attempts)
    first = without_trials(run)
    summary = summarize(first.info, first.attempts)
    print_line(console, f"baseline: {words.summary_line(summary)}")
    red = red_baseline(run.attempts)
    findings = () if red else find(run.info, run.attempts)
    if red:
        _explain_baseline(run, console)
        print_line(console, words.RED_BASELINE, RED)
    else:
        cells = [attempt.started.attempt.cell.name for attempt in first.attempts]
        console.print(table(findings, cells))
        for line in not_run(findings, cells):
            print_line(console, line)
        for finding in findings:
            style = "green" if finding.finding.is_proof else RED
            print_line(console, f"{finding.fix}  {finding.finding}: {finding.reason}", style)
            for line in audited(run, finding.fix):
                print_line(console, f"  {line}")
        _explain_hang(run, console)
        proven = sum(finding.finding.is_proof for finding in findings)
        print_line(console, f"{proven}/{len(findings)} fixes proven necessary", "bold")
    paths = {"run": str(run.path), "attempt": str(run.attempt_dir(""))}
    last = words.last_line(code, paths, [finding.finding for finding in findings])
    print_line(console, last, "green" if code is ExitCode.PASS else RED)
    return code


def without_trials(run: Run) -> Run:
    """Of an ablation, its bare baseline as a run of its own; any other run as it is."""
    ablation = run.info.ablation
    if ablation is None:
        return run
    info = run.info.model_copy(update={"planned": run.info.planned[: ablation.num_selected_cells]})
    return replace(run, info=info, attempts=tuple(baseline(run.attempts)))


def table(findings: Sequence[FixFinding], cells: Sequence[str]) -> Table:
    """One row a fix, one column a cell; `-` where the fix cannot act, so that the cell was not run."""
    grid = Table("fix off", *cells, "finding")
    for finding in findings:
        effects = {effect.cell: effect for effect in finding.effects}
        style = "green" if finding.finding.is_proof else RED
        row = [describe_effect(effects[cell]) if cell in effects else Text("-") for cell in cells]
        grid.add_row(finding.fix, *row, Text(finding.finding, style=style))
    return grid


def not_run(findings: Sequence[FixFinding], cells: Sequence[str]) -> Iterator[str]:
    """What `-` means in the table, if there is one."""
    if any(len(finding.effects) < len(cells) for finding in findings):
        yield words.NOT_RUN


def describe_effect(effect: CellEffect) -> Text:
    """Which verdicts came, how often if there were several trials, and where the effect showed first."""
    if not effect.verdicts:
        return Text(words.UNFINISHED, style=RED)
    counts = {verdict: effect.verdicts.count(verdict) for verdict in dict.fromkeys(effect.verdicts)}
    text = Text()
    for verdict, count in counts.items():
        times = f" {count}/{len(effect.verdicts)}" if len(effect.verdicts) > 1 else ""
        # Here a red verdict is what was looked for, and a green one is the surprise.
        text.append(f"{verdict}{times} ", style=style_of(Verdict.SKIPPED) if verdict.is_green else "bold")
    return text.append(effect.where)


def audited(run: Run, fix: str) -> Iterator[str]:
    """What the audit found with `fix` off: each clause that was broken, its buffers or ops, and the first detail."""
    trials = [a.finished for a in run.attempts if a.started.attempt.fixes_off == (fix,) and a.finished is not None]
    audits = [evidence.audit for trial in trials for evidence in trial.facts.evidence.values()]
    found = [finding for audit in audits for finding in audit or ()]
    for clause in dict.fromkeys(finding.clause for finding in found):
        of_clause = [finding for finding in found if finding.clause == clause]
        buffers = dict.fromkeys(finding.buffer for finding in of_clause)
        yield f"audit: {clause} of {', '.join(buffers)}; first: {of_clause[0].detail}"
    if not found and any(audit is not None for audit in audits):
        yield "audit: nothing found"


def _explain_baseline(run: Run, console: Console) -> None:
    for attempt in red_baseline(run.attempts):
        verdict = attempt.finished.verdict if attempt.finished else None
        for line in (*explain(attempt), *rerun_lines(run.info, verdict, [attempt.started.attempt])):
            print_line(console, f"{attempt.started.key}  {line}")


def _explain_hang(run: Run, console: Console) -> None:
    """The first hang of each fix, told as a story; the others are in the run folder."""
    told: set[tuple[str, ...]] = set()
    for attempt in run.attempts:
        finished, fixes = attempt.finished, attempt.started.attempt.fixes_off
        if finished is None or finished.verdict is not Verdict.HANG or fixes in told:
            continue
        told.add(fixes)
        again = rerun_lines(run.info, finished.verdict, [attempt.started.attempt])
        for number, line in enumerate((*explain(attempt), *again)):
            print_line(console, f"{attempt.started.key}  {line}" if number == 0 else f"  {line}")
