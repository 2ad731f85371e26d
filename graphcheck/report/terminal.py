"""Owns the terminal itself: its console, the colour of a verdict, and how a line of prose is printed."""

import os
import sys

from rich.console import Console
from rich.text import Text

from graphcheck.schema.verdicts import Verdict

_STYLES = {Verdict.PASS: "green", Verdict.UNWITNESSED: "cyan", Verdict.SKIPPED: "yellow"}
RED = "bold red"


class Terminal(Console):
    """Standard output, with colour only where it is a terminal."""

    def on_broken_pipe(self) -> None:
        """The reader has gone away (`| head`): what follows is not shown, but the verdict and its exit code stand."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def style_of(verdict: Verdict | None) -> str:
    """The colour of a verdict; a cell without one is red."""
    return RED if verdict is None else _STYLES.get(verdict, RED)


def print_line(console: Console, text: str, style: str = "") -> None:
    """Prose is neither cut nor wrapped here: a pipe gets one line a fact, a terminal wraps by itself."""
    console.print(Text(text, style=style), soft_wrap=True)
