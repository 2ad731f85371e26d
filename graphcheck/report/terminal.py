"""Owns the terminal itself: its console, the colour of a verdict, and how a line of prose is printed."""

import os
import sys

from rich.console import Console
from rich.text import Text

from graphcheck.schema.verdicts import Verdict

_STYLES = {Verdict.PASS: "green", Verdict.UNWITNESSED: "cyan", Verdict.SKIPPED: "yellow"}
RED = "bold red"
UNBOUNDED = 100_000
"""More columns than any table has."""


class Terminal(Console):
    """Standard output, or error: as wide as the terminal, with colour only where it is one and `NO_COLOR` is unset.

    What is no terminal has no width, so that a table keeps its words, unless `COLUMNS` gives it one.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr)
        if not self.file.isatty() and not os.environ.get("COLUMNS"):
            self.width = UNBOUNDED

    @property
    def can_redraw(self) -> bool:
        """True on a terminal that can move its cursor; `FORCE_COLOR`, as CI sets it, makes a pipe none."""
        return self.file.isatty() and self.is_interactive

    def show_cursor(self, show: bool = True) -> bool:
        """The cursor is never hidden: nobody would show it again after a kill."""
        return False

    def on_broken_pipe(self) -> None:
        """The reader has gone away (`| head`): what follows is not shown, but the verdict and its exit code stand."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def style_of(verdict: Verdict | None) -> str:
    """The colour of a verdict; a cell without one is red."""
    return RED if verdict is None else _STYLES.get(verdict, RED)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Prose is neither cut nor wrapped here: a pipe gets one line a fact, a terminal wraps by itself."""
    console.print(Text(text, style=style), soft_wrap=True)
