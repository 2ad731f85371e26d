"""Owns how a run looks in a terminal: a grid to see at a glance, red cells explained, what it adds up to."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphcheck.harness.records.run_folder import Run
from graphcheck.harness.records.summary import summarize
from graphcheck.report import words
from graphcheck.report.explain import explain
from graphcheck.report.frames import axis_names, cells_frame
from graphcheck.report.golden import environment_notes
from graphcheck.report.rerun import rerun_lines
from graphcheck.report.terminal import RED, print_line, style_of
from graphcheck.schema.attempt import Attempt
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.verdicts import Verdict


def render(run: Run, console: Console) -> ExitCode:
    """Prints a run, its exit code in words on the last line, and returns that code."""
    summary = summarize(run.info, run.attempts)
    for warning in [*words.warnings(run.info.environment), *run.notes, *environment_notes(run)]:
        print_line(console, warning, "yellow")
    print_line(console, words.title(run.info, str(run.path)), "bold")
    console.print(grid(run))
    _explain(run, console)
    for line in words.where_lines(run.info, run.attempts):
        print_line(console, line, RED)
    print_line(console, words.summary_line(summary), "bold")
    code = summary.exit_code
    print_line(console, words.last_line(code, _paths(run, code)), "green" if code is ExitCode.PASS else RED)
    return code


def _paths(run: Run, code: ExitCode) -> dict[str, str]:
    """Folders that the last line may point to: the run's, and that of the first cell that earned the exit code."""
    earned = (a.started.key for a in run.attempts if a.finished is not None and a.finished.verdict.exit_code is code)
    return {"run": str(run.path), "attempt": str(run.attempt_dir(next(earned, "")))}


def _explain(run: Run, console: Console) -> None:
    """Cells with the same story share it."""
    stories: dict[tuple[Verdict | None, tuple[str, ...]], list[Attempt]] = {}
    for attempt in run.attempts:
        verdict = attempt.finished.verdict if attempt.finished else None
        stories.setdefault((verdict, tuple(explain(attempt))), []).append(attempt.started.attempt)
    for (verdict, lines), attempts in stories.items():
        keys = [attempt.key for attempt in attempts]
        for number, line in enumerate(lines):
            if number == 0:
                print_line(console, f"{words.names(keys)}  {verdict or words.UNFINISHED}: {line}", style_of(verdict))
            else:
                print_line(console, f"  {line}")
        for line in rerun_lines(run.info, verdict, attempts):
            print_line(console, f"  {line}")


def grid(run: Run) -> Table:
    """Rows by the first axis and columns by graph off/on where these are the only axes; else one row a cell."""
    cells = cells_frame(run)
    axes = axis_names(run)
    if len(axes) == 2 and "graph" in axes:
        other = next(axis for axis in axes if axis != "graph")
        return _square(cells, other)
    return _list(cells, axes)


def _square(cells: pd.DataFrame, rows: str) -> Table:
    table = Table(rows)
    columns = list(dict.fromkeys(cells["graph"]))
    for value in columns:
        table.add_column(f"graph {value}")
    for value, row in cells.groupby(rows, sort=False):
        by_graph = {cell["graph"]: cell for cell in row.to_dict("records")}
        table.add_row(str(value), *(_cell(by_graph[graph]) if graph in by_graph else "" for graph in columns))
    return table


def _list(cells: pd.DataFrame, axes: list[str]) -> Table:
    table = Table(*axes, "cell")
    for cell in cells.to_dict("records"):
        table.add_row(*("" if pd.isna(cell[axis]) else str(cell[axis]) for axis in axes), _cell(cell))
    return table


def _cell(cell: Mapping[Any, Any]) -> Text:
    """Verdict, exact of all prompts, replays, seconds; a counter that nobody could give is a question mark."""
    if pd.isna(cell["verdict"]):
        return Text(words.UNFINISHED, style=RED)
    verdict = Verdict(cell["verdict"])
    text = Text(words.EAGER_BY_DECLARATION if cell["declared_eager"] else verdict.value, style=style_of(verdict))
    if not pd.isna(cell["prompts"]):
        replays = "?" if pd.isna(cell["replays"]) else cell["replays"]
        text.append(f"  {cell['exact']}/{cell['prompts']}  {replays} replays", style="default")
    if not pd.isna(cell["seconds"]):
        text.append(f"  {cell['seconds']:.1f} s", style="default")
    return text
