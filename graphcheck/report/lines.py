"""Owns a run as a log follows it: a line for each attempt as it ends, and a sign of life in between."""

import time
from collections.abc import Sequence

from rich.console import Console

from graphcheck.harness.running.observe import Progress
from graphcheck.report.following import Following, Now, Row, ending
from graphcheck.report.terminal import print_line, style_of
from graphcheck.schema.run import AttemptFinished

HEARTBEAT_SECONDS = 30.0
"""CI takes a job that prints nothing for minutes for dead, and a reader does so sooner."""


class Lines(Following):
    """Prints on `console`; the supervisor's looks drive the heartbeat, so that it stops if the supervisor does."""

    def __init__(self, console: Console, now: Now = time.monotonic) -> None:
        super().__init__(now)
        self._console = console
        self._last_line = now()

    def planned(self, keys: Sequence[str]) -> None:
        """See Observer.planned."""
        super().planned(keys)
        self._last_line = self.now()

    def progress(self, progress: Progress) -> None:
        """See Observer.progress."""
        super().progress(progress)
        if self.current is not None and self.now() - self._last_line >= HEARTBEAT_SECONDS:
            self._print(self._heartbeat(self.current, progress.step))

    def ended(self, row: Row, record: AttemptFinished) -> None:
        """See Following.ended."""
        took = f"  {row.spent(self.now()):.1f} s" if row.progress is not None else ""
        self._print(f"{row.key}  {ending(record)}{took}  [{self.outlook()}]", style_of(record.verdict))

    def _heartbeat(self, row: Row, step: int) -> str:
        now = self.now()
        rate = row.tokens_per_second(now)
        speed = f", {rate:.0f} tokens/s" if rate else ""
        return f"{row.key}  {row.phase}, step {step}{speed}, {row.spent(now):.0f} s so far  [{self.outlook()}]"

    def _print(self, line: str, style: str = "") -> None:
        self._last_line = self.now()
        print_line(self._console, line, style)
