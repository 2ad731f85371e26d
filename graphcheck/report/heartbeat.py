"""Owns when a log gives a sign of life: once nothing was printed for a while. What it says is the caller's business."""

import time
from collections.abc import Callable

from rich.console import Console

from graphcheck.report.terminal import print_line

HEARTBEAT_SECONDS = 30.0
"""CI takes a job that prints nothing for minutes for dead, and a reader does so sooner."""

Now = Callable[[], float]
"""Monotonic seconds."""


class Heartbeat:
    """Prints on `console`. It has no thread: whoever is at work calls `beat`, so that it stops if the work does."""

    def __init__(self, console: Console, now: Now = time.monotonic) -> None:
        self._console, self._now = console, now
        self.restart()

    def restart(self) -> None:
        """Nothing is due before its time has passed once more."""
        self._last_line = self._now()

    def say(self, line: str, style: str = "") -> None:
        """Prints a line, after which no other is due for a while."""
        self.restart()
        print_line(self._console, line, style)

    def beat(self, line: Callable[[], str]) -> None:
        """Prints what `line` gives if that is due."""
        if self._now() - self._last_line >= HEARTBEAT_SECONDS:
            self.say(line())
