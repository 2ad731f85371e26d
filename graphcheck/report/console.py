"""Owns how a run looks in a terminal: a grid to see at a glance, red cells explained, what it adds up to."""

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from graphcheck.harness.judging.summary import summarize
from graphcheck.harness.records.run_folder import Run
from graphcheck.report import words
from graphcheck.report.advice import last_line
from graphcheck.report.frames import axis_names, cells_frame
from graphcheck.report.golden import environment_notes
from graphcheck.report.stories import print_stories
from graphcheck.report.terminal import RED, print_line, style_of
from graphcheck.schema.exit_codes import ExitCode
from graphcheck.schema.verdicts import Verdict


def render(run: Run, console: Console) -> ExitCode:
    """Prints a run, its exit code in words on the last line, and returns that code."""
    summary = summarize(run.info, run.attempts)
    for warning in [*words.warnings(run.info.environment), *run.notes, *environment_notes(run)]:
        print_line(console, warning, "yellow")
    print_line(console, words.title(run.info, str(run.path)), "bold")
    console.print(grid(run))
    print_stories(run.info, run.attempts, console)
    for line in words.where_lines(run.info, run.attempts):
        print_line(console, line, RED)
    print_line(console, words.summary_line(summary), "bold")
    code = summary.exit_code
    print_line(console, last_line(run, code), "green" if code is ExitCode.PASS else RED)
    return code


def grid(run: Run) -> Table:
    """Rows by the first axis and columns by graph off/on where these are the only axes; else one row a cell."""
    cells = cells_frame(run)
    axes = axis_names(run)
    if len(axes) == 2 and "graph" in axes:
        other = next(axis for axis in axes if axis != "graph")
        return _square(cells, other)
    return _list(cells, axes)


def _square(cells: pd.DataFrame, rows: str) -> Table:
    columns = list(dict.fromkeys(cells["graph"]))
    table = Table(*(Column(name, overflow="fold") for name in (rows, *(f"graph {value}" for value in columns))))
    for value, row in cells.groupby(rows, sort=False):
        by_graph = {cell["graph"]: cell for cell in row.to_dict("records")}
        table.add_row(str(value), *(_cell(by_graph[graph]) if graph in by_graph else "" for graph in columns))
    return table


def _list(cells: pd.DataFrame, axes: list[str]) -> Table:
    table = Table(*(Column(name, overflow="fold") for name in (*axes, "cell")))
    for cell in cells.to_dict("records"):
        table.add_row(*("" if pd.isna(cell[axis]) else str(cell[axis]) for axis in axes), _cell(cell))
    return table


def _cell(cell: Mapping[Any, Any]) -> Text:
    """Verdict, exact of all prompts, near ties, replays, seconds; a counter that nobody could give is `?`.

    A skipped cell has none of them.
    """
    if pd.isna(cell["verdict"]):
        return Text(words.UNFINISHED, style=RED)
    verdict = Verdict(cell["verdict"])
    text = Text(words.EAGER_BY_DECLARATION if cell["declared_eager"] else verdict.value, style=style_of(verdict))
    if verdict is not Verdict.SKIPPED and not pd.isna(cell["prompts"]):
        replays = "? replays" if pd.isna(cell["replays"]) else words.counted(cell["replays"], "replay")
        exact = words.exactness(cell["exact"], cell["prompts"], cell["near_ties"])
        text.append(f"  {exact}  {replays}", style="default")
    if not pd.isna(cell["seconds"]):
        text.append(f"  {cell['seconds']:.1f} s", style="default")
    return text
