"""Owns what counts as progress of an attempt, and since when there has been none."""

from collections.abc import Sequence
from dataclasses import dataclass

from graphcheck.harness.running.limits import STEPPING, Limits
from graphcheck.schema.events import ErrorEvent, Event, EvidenceEvent, ExitEvent, Phase, PhaseEvent, StepEvent
from graphcheck.schema.journal import Journal

_BEHIND: dict[Phase, int] = {"start": 0, "load": 1, "capture": 2, "prefill": 3, "decode": 3, "teardown": 4, "done": 5}
"""How far each phase is; prefill and decode take turns, so their steps decide."""


@dataclass
class _Rank:
    """What was last heard of one rank."""

    phase: Phase = "start"
    step: int = 0
    counters: tuple[object, ...] = ()
    has_journal: bool = False
    finished: bool = False
    exited: bool = False
    last_step_event: float | None = None

    @property
    def place(self) -> tuple[Phase, int]:
        return self.phase, self.step


class Watch:
    """Follows every rank. `now` is the caller's, in seconds of one monotonic clock.

    Only busy ranks count: those with unfinished work and, after `release`, those that have not left. A rank is in
    phase "start" until it is first heard, so that no clock but that phase's runs before every rank's first beat.
    """

    def __init__(self, num_ranks: int, limits: Limits, now: float) -> None:
        self._limits = limits
        self._ranks = [_Rank() for _ in range(num_ranks)]
        self._released = False
        self._slowest_step: float | None = None
        self._slowest_first_step: float | None = None
        self._shapes: set[tuple[object, ...]] = set()
        self.restart(now)

    def restart(self, now: float) -> None:
        """Starts the clock anew, as if everything had just moved."""
        self._moved = self._stepped = now

    def release(self, now: float) -> None:
        """From here on a rank's only work is to leave."""
        self._released = True
        self.restart(now)

    def see_event(self, event: Event, now: float) -> None:
        """An event is progress by itself, so that a target without journals can be watched too."""
        rank = self._ranks[event.rank]
        if isinstance(event, ErrorEvent | EvidenceEvent):
            return
        if isinstance(event, ExitEvent):
            rank.exited = True
        if isinstance(event, StepEvent):
            self._time_step(rank, event, now)
        if isinstance(event, PhaseEvent) and event.phase in ("teardown", "done"):
            rank.finished = True
        before = rank.place
        if not rank.has_journal and isinstance(event, PhaseEvent | StepEvent):
            rank.phase = event.phase
            rank.step = event.step if isinstance(event, StepEvent) else rank.step
        self._progress(rank, stepped=isinstance(event, StepEvent) or rank.place != before, now=now)

    def see_journals(self, journals: Sequence[Journal], now: float) -> None:
        """A counter that moved is progress, and so is a rank's first beat; later beats are not."""
        for journal in journals:
            rank = self._ranks[journal.rank]
            before, place = rank.counters, rank.place
            rank.has_journal, rank.phase, rank.step = True, journal.phase, journal.step
            rank.counters = (journal.beat > 0, *journal.progress)
            rank.finished = rank.finished or journal.finished
            if rank.counters != before:
                self._progress(rank, stepped=rank.place != place, now=now)

    def _progress(self, rank: _Rank, *, stepped: bool, now: float) -> None:
        if rank.exited or (rank.finished and not self._released):
            return
        self._moved = now
        if stepped:
            self._stepped = now

    def _time_step(self, rank: _Rank, event: StepEvent, now: float) -> None:
        """The first step of each kind and shape pays for warming up: it counts only while there is no other."""
        last, rank.last_step_event = rank.last_step_event, now
        shape = (event.rank, event.phase, event.bucket, event.replayed)
        seconds = event.seconds if event.seconds is not None else now - (last if last is not None else now)
        if shape in self._shapes:
            self._slowest_step = max(self._slowest_step or 0.0, seconds)
        elif event.seconds is not None or last is not None:
            self._slowest_first_step = max(self._slowest_first_step or 0.0, seconds)
        self._shapes.add(shape)

    @property
    def busy(self) -> list[int]:
        return [
            number
            for number, rank in enumerate(self._ranks)
            if not rank.exited and (self._released or not rank.finished)
        ]

    @property
    def all_finished(self) -> bool:
        return all(rank.finished for rank in self._ranks)

    @property
    def all_exited(self) -> bool:
        return all(rank.exited for rank in self._ranks)

    def finished(self, rank: int) -> bool:
        return self._ranks[rank].finished

    def phase(self, rank: int) -> Phase:
        """The phase that a rank was last heard in; "teardown" for all of them once they were released."""
        return "teardown" if self._released else self._ranks[rank].phase

    @property
    def place(self) -> tuple[Phase, int]:
        """Phase and step of the busy rank that is furthest behind; of any if none is busy."""
        ranks = self.busy or range(len(self._ranks))
        behind = min(ranks, key=lambda rank: (_BEHIND[self._ranks[rank].phase], self._ranks[rank].step))
        return self.phase(behind), self._ranks[behind].step

    @property
    def are_together(self) -> bool:
        """True if all busy ranks are in the same place."""
        return len({(self.phase(rank), self._ranks[rank].step) for rank in self.busy}) <= 1

    @property
    def limit(self) -> float:
        """Seconds that the busy ranks may stand still: the largest of their phases' limits."""
        slowest = self._slowest_step if self._slowest_step is not None else self._slowest_first_step
        return max(self._limits.limit(self.phase(rank), slowest) for rank in self.busy)

    @property
    def ceiling(self) -> float:
        """Seconds after which even a rank that is visibly at work has had its time."""
        return max(self._limits.ceiling_of(self.phase(rank)) for rank in self.busy)

    def still(self, now: float) -> float:
        """Seconds since a busy rank last moved."""
        return now - self._moved

    def stepless(self, now: float) -> float:
        """Seconds since a busy rank last ended a step; 0 while any of them is not in prefill or decode."""
        stepping = all(self.phase(rank) in STEPPING for rank in self.busy)
        return now - self._stepped if stepping else 0.0
