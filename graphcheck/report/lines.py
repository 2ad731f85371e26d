"""Owns a run as a log follows it: a line for each attempt as it ends, and a sign of life in between."""

import time
from collections.abc import Sequence

from rich.console import Console

from graphcheck.harness.running.observe import Progress
from graphcheck.report.following import Following, Row, ending
from graphcheck.report.heartbeat import Heartbeat, Now
from graphcheck.report.terminal import style_of
from graphcheck.schema.run import AttemptFinished


class Lines(Following):
    """Prints on `console`; the supervisor's looks drive the heartbeat."""

    def __init__(self, console: Console, now: Now = time.monotonic) -> None:
        super().__init__(now)
        self._heartbeat = Heartbeat(console, now)

    def planned(self, keys: Sequence[str]) -> None:
        """See Observer.planned."""
        super().planned(keys)
        self._heartbeat.restart()

    def progress(self, progress: Progress) -> None:
        """See Observer.progress."""
        super().progress(progress)
        if (row := self.current) is not None:
            self._heartbeat.beat(lambda: self._sign_of_life(row, progress.step))

    def ended(self, row: Row, record: AttemptFinished) -> None:
        """See Following.ended."""
        took = f"  {row.spent(self.now()):.1f} s" if row.progress is not None else ""
        self._heartbeat.say(f"{row.key}  {ending(record)}{took}  [{self.outlook()}]", style_of(record.verdict))

    def _sign_of_life(self, row: Row, step: int) -> str:
        now = self.now()
        rate = row.tokens_per_second(now)
        speed = f", {rate:.0f} tokens/s" if rate else ""
        return f"{row.key}  {row.phase}, step {step}{speed}, {row.spent(now):.0f} s so far  [{self.outlook()}]"
