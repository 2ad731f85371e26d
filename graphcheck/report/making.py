"""Owns making goldens in front of their user: a line that is drawn again on a terminal, a sign of life in a log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from rich.console import Group
from rich.live import Live
from rich.text import Text

from graphcheck.harness.golden.regen import NUM_COMPUTATIONS, Making, OnPoll
from graphcheck.harness.golden.regen_matrix import regen_matrix
from graphcheck.harness.planning.request import RunRequest
from graphcheck.report.golden import print_filed
from graphcheck.report.heartbeat import Heartbeat, Now
from graphcheck.report.screen import DRAW_SECONDS
from graphcheck.report.terminal import Terminal


def regen_and_report(request: RunRequest, console: Terminal, *, writes: bool) -> None:
    """Makes a matrix's goldens, followed on standard error, and prints on `console` what became of each.

    Raises:
        GraphcheckError: see `regen_matrix`.
    """
    with follow_making(Terminal(stderr=True)) as on_poll:
        filed = regen_matrix(request, writes=writes, on_poll=on_poll)
    print_filed(filed, console)


@contextmanager
def follow_making(console: Terminal, now: Now = time.monotonic) -> Iterator[OnPoll]:
    """What hears of each poll until the context ends; a line on a terminal is then erased."""
    began = now()
    if not console.can_redraw:
        heartbeat = Heartbeat(console, now)
        yield lambda making: heartbeat.beat(lambda: _sentence(making, now() - began))
        return
    drawn = -inf
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def draw(making: Making) -> None:
            nonlocal drawn
            if now() - drawn >= DRAW_SECONDS:
                drawn = now()
                line = Text(_sentence(making, drawn - began), no_wrap=True, overflow="ellipsis")
                live.update(Group(line, Text()), refresh=True)

        yield draw


def _sentence(making: Making, seconds: float) -> str:
    """`probe/twelve.jsonl  computation 2 of 3, prompt count-on, 75 s so far`."""
    where = "loads the model" if making.prompt is None else f"prompt {making.prompt}"
    return f"{making.golden}  computation {making.computation} of {NUM_COMPUTATIONS}, {where}, {seconds:.0f} s so far"
