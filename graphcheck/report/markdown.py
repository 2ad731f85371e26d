"""Owns a run as a block of Markdown, ready to paste into a pull request; prints nothing that is private."""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from rich.console import Console

from graphcheck.harness.judging.findings import ablation_exit_code, find, red_baseline
from graphcheck.harness.judging.summary import summarize
from graphcheck.harness.records.run_folder import Run
from graphcheck.report import words
from graphcheck.report.ablation import audited, describe_effect, first_hangs, not_run, without_trials
from graphcheck.report.explain import brief
from graphcheck.report.frames import axis_names, cells_frame
from graphcheck.report.golden import describe_calibration, environment_notes
from graphcheck.report.limitations import limitations
from graphcheck.report.provenance import provenance_facts
from graphcheck.report.public import make_public, this_machine
from graphcheck.report.rerun import as_typed, whole_command
from graphcheck.report.tally import evidence_line
from graphcheck.report.terminal import Terminal, print_line
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.golden import GoldenHeader
from graphcheck.schema.run import AttemptFinished
from graphcheck.schema.verdicts import Verdict

SHA_DIGITS = 12
"""As many of a sha256 as a reader compares."""


def print_markdown(run: Run, console: Console) -> ExitCode:
    """Prints the block; what was taken out of it, and the exit code in words, go to standard error."""
    code = exit_code(run)
    block = make_public(markdown(run), this_machine(), keep=_public_names(run))
    console.out(block.text, highlight=False)
    aside = Terminal(stderr=True)
    removed = ", ".join(f"{kind} x {count}" for kind, count in sorted(block.removed.items())) or "nothing"
    print_line(aside, f"public-content check: {removed} taken out")
    print_line(aside, f"exit {int(code)}: {MEANING[code]}")
    return code


def exit_code(run: Run) -> ExitCode:
    """The code that the run earned."""
    if run.info.ablation is None:
        return summarize(run.info, run.attempts).exit_code
    return ablation_exit_code(run.info, run.attempts)


def markdown(run: Run) -> str:
    """The block: a pure function of the run folder, not yet checked for private content.

    Raises:
        GoldenCorrupt: the run's copy of a golden is missing or damaged.
    """
    intact = without_trials(run)
    warnings = [*words.warnings(run.info.environment), *run.notes, *environment_notes(run)]
    sections = [
        *(f"> {warning}" for warning in warnings),
        f"## graphcheck: {_headline(run, intact)}",
        _table(("", ""), _facts(run)),
        evidence_line(intact.info, intact.attempts),
        _grid(intact),
        *_not_plain(run),
        *(_ablation(run) if run.info.ablation is not None and not red_baseline(run.attempts) else ()),
        f"### To repeat\n\n{_fenced(_commands(run))}",
        "### Limitations\n\n" + "\n".join(f"- {sentence}" for sentence in limitations(run)),
    ]
    return "\n\n".join(sections)


def _headline(run: Run, intact: Run) -> str:
    summary = words.summary_line(summarize(intact.info, intact.attempts))
    if run.info.ablation is None:
        return summary
    if red_baseline(run.attempts):
        return f"baseline {summary}: {words.RED_BASELINE}"
    proven = [finding.finding.is_proof for finding in find(run.info, run.attempts)]
    return f"{sum(proven)}/{len(proven)} fixes proven necessary; baseline {summary}"


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    """What ran: graphcheck, matrix, backend, environment, and the fingerprints of model and golden."""
    info, code = run.info, exit_code(run)
    changed = [f"fixes off: {', '.join(info.fixes_off)}"] if info.fixes_off else []
    changed += [as_typed(info.overrides)] if info.overrides else []
    yield "result", f"exit {int(code)}: {MEANING[code]}"
    yield "graphcheck", f"{info.graphcheck}, matrix {info.matrix_name}, target {info.matrix.target}"
    if changed:
        yield "changed", "; ".join(changed)
    yield "backend", words.backend_phrase(summarize(info, run.attempts))
    yield "environment", ", ".join(f"{name} {value}" for name, value in info.environment.items())
    yield from provenance_facts(run)
    for name, header in _goldens(run).items():
        model = ", ".join(f"{part} {sha[:SHA_DIGITS]}" for part, sha in header.model.items())
        yield f"model {header.model_name}", f"sha256: {model}; {header.dtype}"
        versions = ", ".join(f"{package} {version}" for package, version in header.versions.items())
        sha, prompts = header.body_sha[:SHA_DIGITS], words.counted(header.num_prompts, "prompt")
        yield f"golden {name}", f"sha256: {sha}; {prompts} by {header.reference} ({versions})"
    used = (attempt.started.calibration for attempt in run.attempts)
    for line in dict.fromkeys(f"{describe_calibration(one)}; {one.command}" for one in used if one is not None):
        yield "calibration", line


def _goldens(run: Run) -> dict[str, GoldenHeader]:
    """Model/suite -> header of the golden that its attempts were judged by."""
    judged = {
        f"{started.model}/{started.suite}" + ("" if started.dtype == "float32" else f" {started.dtype}"): started
        for started in (attempt.started for attempt in run.attempts)
        if started.workload is not None
    }
    return {name: run.golden(started).header for name, started in judged.items()}


def _grid(run: Run) -> str:
    """Rows by the other axis where graph is one of two; else one row a cell."""
    cells, axes = cells_frame(run), axis_names(run)
    if len(axes) != 2 or "graph" not in axes:
        rows = [[_text(cell[axis]) for axis in axes] + [_cell(cell)] for cell in cells.to_dict("records")]
        return _table((*axes, "cell"), rows)
    other = next(axis for axis in axes if axis != "graph")
    columns = list(dict.fromkeys(cells["graph"]))
    rows = []
    for value, row in cells.groupby(other, sort=False):
        by_graph = {cell["graph"]: _cell(cell) for cell in row.to_dict("records")}
        rows.append([_text(value), *(by_graph.get(graph, "") for graph in columns)])
    return _table((other, *(f"graph {graph}" for graph in columns)), rows)


def _cell(cell: Mapping[Any, Any]) -> str:
    """`PASS 5/16 +11 near ties, 63 replays`. No seconds: nothing here claims a speed."""
    if pd.isna(cell["verdict"]):
        return words.UNFINISHED
    text = words.EAGER_BY_DECLARATION if cell["declared_eager"] else str(cell["verdict"])
    if text != Verdict.SKIPPED and not pd.isna(cell["prompts"]):
        replays = "? replays" if pd.isna(cell["replays"]) else words.counted(cell["replays"], "replay")
        text += f" {words.exactness(cell['exact'], cell['prompts'], cell['near_ties'])}, {replays}"
    return text


def _not_plain(run: Run) -> Iterator[str]:
    """Each story once, with the cells that share it; of an ablation, only of those that had every fix on."""
    stories: dict[tuple[str, ...], list[str]] = {}
    for attempt in run.attempts:
        is_trial = run.info.ablation is not None and attempt.started.attempt.fixes_off
        if attempt.finished is not None and not is_trial and not _is_plain(attempt.finished):
            stories.setdefault(tuple(_story(attempt.finished)), []).append(attempt.started.key)
    if stories:
        lines = [line for story, keys in stories.items() for line in _entry(words.names(keys), story)]
        lines += words.where_lines(run.info, run.attempts) if run.info.ablation is None else []
        yield f"### Not a plain PASS\n\n{_fenced(lines)}"


def _is_plain(finished: AttemptFinished) -> bool:
    return finished.verdict is Verdict.PASS and not any(prompt.near_ties for prompt in finished.prompts)


def _ablation(run: Run) -> Iterator[str]:
    findings = find(run.info, run.attempts)
    cells = [attempt.started.attempt.cell.name for attempt in without_trials(run).attempts]
    rows = []
    for finding in findings:
        effects = {effect.cell: describe_effect(effect).plain for effect in finding.effects}
        rows.append([finding.fix, *(effects.get(cell, "-") for cell in cells), finding.finding])
    yield f"### Ablation: one fix off at a time\n\n{_table(('fix off', *cells, 'finding'), rows)}"
    yield from not_run(findings, cells)
    lines = []
    for finding in findings:
        lines.append(f"{finding.fix}  {finding.finding}: {finding.reason}")
        lines += [f"  {line}" for line in audited(run, finding.fix)]
    yield _fenced(lines)
    stories = [_entry(a.started.key, _story(a.finished)) for a in first_hangs(run) if a.finished is not None]
    if stories:
        yield f"### The hang\n\n{_fenced([line for story in stories for line in story])}"


def _story(finished: AttemptFinished) -> list[str]:
    first, *more = brief(finished)
    return [f"{finished.verdict}: {first}", *more]


def _entry(name: str, story: Sequence[str]) -> list[str]:
    first, *more = story
    return [f"{name}  {first}", *(f"  {line}" for line in more)]


def _commands(run: Run) -> list[str]:
    """How the goldens were made, and then the run itself."""
    goldens = dict.fromkeys(header.command for header in _goldens(run).values())
    if not run.info.command:
        return [*goldens, f"recorded through the library: matrix {run.info.matrix_name}"]
    return [*goldens, shlex.join(whole_command(run.info))]


def _public_names(run: Run) -> set[str]:
    """What the run calls its things, which is public whatever this machine calls its own."""
    info = run.info
    names = {"graphcheck", info.matrix_name, info.matrix.target, *info.matrix.models, *info.matrix.suites}
    names |= {*info.fixes_off, *info.environment.values()}
    names |= {fix.name for fix in info.ablation.fixes} if info.ablation is not None else set()
    for attempt in run.attempts:
        started = attempt.started
        names |= {started.key, started.attempt.cell.name, *started.settings, *map(str, started.settings.values())}
    return names


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines)


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def _escaped(text: str) -> str:
    """A table cell: plain where nothing in it means anything to Markdown, else as code, so that `#22` stays `#22`."""
    if re.fullmatch(r"[\w ,.;:%()/=?+-]*", text):
        return text
    return "`" + text.replace("`", "'").replace("|", "\\|").replace("\n", " ") + "`"


def _fenced(lines: Sequence[str]) -> str:
    """Lines as they are, inside a fence that none of them can close."""
    text = "\n".join(lines)
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in re.findall("`+", text))])
    return f"{fence}text\n{text}\n{fence}"
