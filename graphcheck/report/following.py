"""Owns what is known of a run while it goes on: what waits, runs and has ended, how fast, and how long it may take."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from graphcheck.harness.judging.summary import num_exact
from graphcheck.harness.running.limits import STEPPING
from graphcheck.harness.running.observe import Observer, Progress
from graphcheck.report import words
from graphcheck.report.heartbeat import Now
from graphcheck.schema.attempt import FORCED_SUFFIX
from graphcheck.schema.run import AttemptFinished, AttemptStarted


@dataclass
class Row:
    """One attempt, its forced pass included. Times are those of the follower's clock; None: not yet."""

    key: str
    is_forced: bool = False
    progress: Progress | None = None
    began: float | None = None
    stepping_since: float | None = None
    seconds: float | None = None
    finished: AttemptFinished | None = None

    def spent(self, now: float) -> float:
        """Seconds since it began, or all that it took."""
        if self.seconds is not None:
            return self.seconds
        return now - self.began if self.began is not None else 0.0

    def tokens_per_second(self, now: float) -> float | None:
        """Output tokens of all lanes since the pass began to step; None while there is nothing to divide."""
        if self.progress is None or self.stepping_since is None or now <= self.stepping_since:
            return None
        return self.progress.num_tokens / (now - self.stepping_since)

    @property
    def phase(self) -> str:
        phase = self.progress.phase if self.progress is not None else "start"
        return f"{phase}, forced" if self.is_forced else phase


class Following(Observer):
    """Keeps one row an attempt, in the order in which they run; shows nothing."""

    def __init__(self, now: Now = time.monotonic) -> None:
        self.now = now
        self.rows: dict[str, Row] = {}
        self.current: Row | None = None

    def planned(self, keys: Sequence[str]) -> None:
        """See Observer.planned."""
        self.rows = {key: Row(key) for key in keys}

    def started(self, record: AttemptStarted) -> None:
        """A forced pass goes on in the row of its attempt, unless it was planned itself; it counts its own tokens."""
        is_planned = record.key in self.rows
        row = self.rows[record.key if is_planned else record.key.removesuffix(FORCED_SUFFIX)]
        row.is_forced = not is_planned
        row.progress = row.stepping_since = None
        if is_planned:
            row.began = self.now()
        self.current = row

    def progress(self, progress: Progress) -> None:
        """See Observer.progress."""
        row = self.current
        assert row is not None
        if row.progress is None and not row.is_forced:
            # A target's first attempt may wait for what serves all of them: that is no measure for the others.
            row.began = self.now()
        row.progress = progress
        if row.stepping_since is None and progress.phase in STEPPING:
            row.stepping_since = self.now()

    def finished(self, record: AttemptFinished) -> None:
        """The row in which a forced pass goes on ends with its attempt."""
        row = self.rows.get(record.key)
        if row is None:
            return
        row.finished, row.seconds = record, row.spent(self.now())
        self.current = None
        self.ended(row, record)

    def ended(self, row: Row, record: AttemptFinished) -> None:
        """An attempt with all its passes is over."""

    @property
    def num_done(self) -> int:
        return sum(row.finished is not None for row in self.rows.values())

    def seconds_left(self) -> float | None:
        """From the mean of the attempts that ran; None before the first has ended, or if nothing is left."""
        ran = [row.seconds for row in self.rows.values() if row.seconds is not None and row.progress is not None]
        left = len(self.rows) - self.num_done
        if not ran or not left:
            return None
        spent = self.current.spent(self.now()) if self.current is not None else 0.0
        mean = sum(ran) / len(ran)
        return max(mean - spent, 0.0) + mean * (left - 1)

    def outlook(self) -> str:
        """`3/6 done, about 8 s left`."""
        left = self.seconds_left()
        return f"{self.num_done}/{len(self.rows)} done" + (f", about {left:.0f} s left" if left is not None else "")


def ending(finished: AttemptFinished) -> str:
    """`PASS  5/16 +11 near ties`: the verdict, and the exact prompts if there were any."""
    if not finished.prompts:
        return finished.verdict
    exact = words.exactness(num_exact(finished), len(finished.prompts), words.num_near_tied(finished))
    return f"{finished.verdict}  {exact}"
