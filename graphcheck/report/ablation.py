"""Owns how an ablation looks in a terminal: fixes by cells, the finding on each fix, the hang as a story."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from graphcheck.harness.judging.findings import ablation_exit_code, baseline, find, red_baseline
from graphcheck.harness.judging.summary import summarize
from graphcheck.harness.records.run_folder import Run
from graphcheck.report import words
from graphcheck.report.advice import last_line
from graphcheck.report.stories import print_stories
from graphcheck.report.terminal import RED, UNBOUNDED, print_line, style_of
from graphcheck.schema.ablation import CellEffect, FixFinding
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.run import RecordedAttempt
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
    print_stories(run.info, [*red, *_skipped(first)], console)
    if red:
        print_line(console, words.RED_BASELINE, RED)
    else:
        _print_table(findings, [attempt.started.attempt.cell.name for attempt in first.attempts], console)
        for finding in findings:
            style = "green" if finding.finding.is_proof else RED
            print_line(console, f"{finding.fix}  {finding.finding}: {finding.reason}", style)
            for line in audited(run, finding.fix):
                print_line(console, f"  {line}")
        print_stories(run.info, first_hangs(run), console)
        proven = sum(finding.finding.is_proof for finding in findings)
        print_line(console, f"{proven}/{len(findings)} fixes proven necessary", "bold")
    last = last_line(run, code, [finding.finding for finding in findings])
    print_line(console, last, "green" if code is ExitCode.PASS else RED)
    return code


def without_trials(run: Run) -> Run:
    """Of an ablation, its bare baseline as a run of its own; any other run as it is."""
    ablation = run.info.ablation
    if ablation is None:
        return run
    info = run.info.model_copy(update={"planned": run.info.planned[: ablation.num_selected_cells]})
    return replace(run, info=info, attempts=tuple(baseline(run.attempts)))


def first_hangs(run: Run) -> list[RecordedAttempt]:
    """The first hang of each fix, which stands for its others; those are in the run folder."""
    hangs: dict[tuple[str, ...], RecordedAttempt] = {}
    for attempt in run.attempts:
        if attempt.finished is not None and attempt.finished.verdict is Verdict.HANG:
            hangs.setdefault(attempt.started.attempt.fixes_off, attempt)
    return list(hangs.values())


def _skipped(run: Run) -> list[RecordedAttempt]:
    return [a for a in run.attempts if a.finished is not None and a.finished.verdict is Verdict.SKIPPED]


def _print_table(findings: Sequence[FixFinding], cells: Sequence[str], console: Console) -> None:
    grid = table(findings, cells)
    if console.measure(grid, options=console.options.update(width=UNBOUNDED)).maximum > console.width:
        console.print(_long_table(findings))
        return
    console.print(grid)
    for line in not_run(findings, cells):
        print_line(console, line)


def _long_table(findings: Sequence[FixFinding]) -> Table:
    """One row a cell in which a fix can act, for a console too narrow for a column a cell."""
    rows = Table(*(Column(name, overflow="fold") for name in ("fix off", "cell", "what came")))
    for finding in findings:
        for number, effect in enumerate(finding.effects):
            rows.add_row(finding.fix if number == 0 else "", effect.cell, describe_effect(effect))
    return rows


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
    """Which verdicts came, how often if there were several trials, and where the effect showed first.

    What a skipped cell lacks is too long for a table, and its baseline has told it.
    """
    if not effect.verdicts:
        return Text(words.UNFINISHED, style=RED)
    counts = {verdict: effect.verdicts.count(verdict) for verdict in dict.fromkeys(effect.verdicts)}
    text = Text()
    for verdict, count in counts.items():
        times = f" {count}/{len(effect.verdicts)}" if len(effect.verdicts) > 1 else ""
        # Here a red verdict is what was looked for, and a green one is the surprise.
        text.append(f"{verdict}{times} ", style=style_of(Verdict.SKIPPED) if verdict.is_green else "bold")
    if set(counts) != {Verdict.SKIPPED}:
        text.append(effect.where)
    text.rstrip()
    return text


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
