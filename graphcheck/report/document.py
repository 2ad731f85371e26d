"""Owns what a run tells those who were not there: a document in blocks, as yet without markup."""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pandas as pd

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
from graphcheck.report.rerun import as_typed, whole_command
from graphcheck.report.tally import evidence_line
from graphcheck.report.terminal import RED, style_of
from graphcheck.schema.exit_codes import MEANING, ExitCode
from graphcheck.schema.golden import GoldenHeader
from graphcheck.schema.run import AttemptFinished
from graphcheck.schema.verdicts import Verdict

SHA_DIGITS = 12
"""As many of a sha256 as a reader compares."""


class Kind(StrEnum):
    """What a block is to its reader. LINES are shown as they are; a TABLE has its head in the first row."""

    WARNING = "warning"
    TITLE = "title"
    HEADING = "heading"
    PARAGRAPH = "paragraph"
    TABLE = "table"
    LINES = "lines"
    LIST = "list"


@dataclass(frozen=True)
class Text:
    """Words, and the colour that a terminal would give them."""

    text: str
    style: str = ""


@dataclass(frozen=True)
class Block:
    """Rows of one text each, but a table's; those of LINES and LIST are many, all others have one."""

    kind: Kind
    rows: tuple[tuple[Text, ...], ...]


def exit_code(run: Run) -> ExitCode:
    """The code that the run earned."""
    if run.info.ablation is None:
        return summarize(run.info, run.attempts).exit_code
    return ablation_exit_code(run.info, run.attempts)


def document(run: Run) -> list[Block]:
    """The document: a pure function of the run folder, not yet checked for private content.

    Raises:
        GoldenCorrupt: the run's copy of a golden is missing or damaged.
    """
    intact = without_trials(run)
    warnings = [*words.warnings(run.info.environment), *run.notes, *environment_notes(run)]
    title = Text(f"graphcheck: {_headline(run, intact)}", _green_if(exit_code(run) is ExitCode.PASS))
    return [
        *(_block(Kind.WARNING, [warning]) for warning in warnings),
        _block(Kind.TITLE, [title]),
        _table(("", ""), _facts(run)),
        _block(Kind.PARAGRAPH, [evidence_line(intact.info, intact.attempts)]),
        _grid(intact),
        *_not_plain(run),
        *(_ablation(run) if run.info.ablation is not None and not red_baseline(run.attempts) else ()),
        _block(Kind.HEADING, ["To repeat"]),
        _block(Kind.LINES, _commands(run)),
        _block(Kind.HEADING, ["Limitations"]),
        _block(Kind.LIST, limitations(run)),
    ]


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


def _grid(run: Run) -> Block:
    """Rows by the other axis where graph is one of two; else one row a cell."""
    cells, axes = cells_frame(run), axis_names(run)
    if len(axes) != 2 or "graph" not in axes:
        each = cells.to_dict("records")
        return _table((*axes, "cell"), [(*(_text(cell[axis]) for axis in axes), _cell(cell)) for cell in each])
    other = next(axis for axis in axes if axis != "graph")
    columns = list(dict.fromkeys(cells["graph"]))
    rows: list[Sequence[Text]] = []
    for value, row in cells.groupby(other, sort=False):
        by_graph = {cell["graph"]: _cell(cell) for cell in row.to_dict("records")}
        rows.append([Text(_text(value)), *(by_graph.get(graph, Text("")) for graph in columns)])
    return _table((other, *(f"graph {graph}" for graph in columns)), rows)


def _cell(cell: Mapping[Any, Any]) -> Text:
    """`PASS 5/16 +11 near ties, 63 replays`. No seconds: nothing here claims a speed."""
    if pd.isna(cell["verdict"]):
        return Text(words.UNFINISHED, RED)
    text = words.EAGER_BY_DECLARATION if cell["declared_eager"] else str(cell["verdict"])
    if text != Verdict.SKIPPED and not pd.isna(cell["prompts"]):
        replays = "? replays" if pd.isna(cell["replays"]) else words.counted(cell["replays"], "replay")
        text += f" {words.exactness(cell['exact'], cell['prompts'], cell['near_ties'])}, {replays}"
    return Text(text, style_of(Verdict(cell["verdict"])))


def _not_plain(run: Run) -> Iterator[Block]:
    """Each story once, with the cells that share it; of an ablation, only of those that had every fix on."""
    stories: dict[tuple[Text, ...], list[str]] = {}
    for attempt in run.attempts:
        is_trial = run.info.ablation is not None and attempt.started.attempt.fixes_off
        if attempt.finished is not None and not is_trial and not _is_plain(attempt.finished):
            stories.setdefault(tuple(_story(attempt.finished)), []).append(attempt.started.key)
    if stories:
        lines = [line for story, keys in stories.items() for line in _entry(words.names(keys), story)]
        where = words.where_lines(run.info, run.attempts) if run.info.ablation is None else []
        yield _block(Kind.HEADING, ["Not a plain PASS"])
        yield _block(Kind.LINES, [*lines, *(Text(line, RED) for line in where)])


def _is_plain(finished: AttemptFinished) -> bool:
    return finished.verdict is Verdict.PASS and not any(prompt.near_ties for prompt in finished.prompts)


def _ablation(run: Run) -> Iterator[Block]:
    findings = find(run.info, run.attempts)
    cells = [attempt.started.attempt.cell.name for attempt in without_trials(run).attempts]
    rows: list[Sequence[str | Text]] = []
    lines: list[Text] = []
    for finding in findings:
        effects = {effect.cell: describe_effect(effect).plain for effect in finding.effects}
        style = _green_if(finding.finding.is_proof)
        rows.append([finding.fix, *(effects.get(cell, "-") for cell in cells), Text(finding.finding, style)])
        lines.append(Text(f"{finding.fix}  {finding.finding}: {finding.reason}", style))
        lines += [Text(f"  {line}") for line in audited(run, finding.fix)]
    yield _block(Kind.HEADING, ["Ablation: one fix off at a time"])
    yield _table(("fix off", *cells, "finding"), rows)
    yield from (_block(Kind.PARAGRAPH, [line]) for line in not_run(findings, cells))
    yield _block(Kind.LINES, lines)
    stories = [_entry(a.started.key, _story(a.finished)) for a in first_hangs(run) if a.finished is not None]
    if stories:
        yield _block(Kind.HEADING, ["The hang"])
        yield _block(Kind.LINES, [line for story in stories for line in story])


def _story(finished: AttemptFinished) -> list[Text]:
    first, *more = brief(finished)
    return [Text(f"{finished.verdict}: {first}", style_of(finished.verdict)), *map(Text, more)]


def _entry(name: str, story: Sequence[Text]) -> list[Text]:
    first, *more = story
    return [replace(first, text=f"{name}  {first.text}"), *(Text(f"  {line.text}") for line in more)]


def _commands(run: Run) -> list[str]:
    """How the goldens were made, and then the run itself."""
    goldens = dict.fromkeys(header.command for header in _goldens(run).values())
    if not run.info.command:
        return [*goldens, f"recorded through the library: matrix {run.info.matrix_name}"]
    return [*goldens, shlex.join(whole_command(run.info))]


def _table(head: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> Block:
    return Block(Kind.TABLE, tuple(tuple(map(_styled, row)) for row in (head, *rows)))


def _block(kind: Kind, rows: Iterable[str | Text]) -> Block:
    return Block(kind, tuple((_styled(row),) for row in rows))


def _styled(text: str | Text) -> Text:
    return Text(text) if isinstance(text, str) else text


def _green_if(is_good: bool) -> str:
    return "green" if is_good else RED


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)
