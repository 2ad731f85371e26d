"""Owns the end of an attempt: when all ranks are done, when one has died, when nothing moves any more."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

from graphcheck.harness.judging.death import EARLY_EXIT, SESSION_LOST, is_bad, with_consequences
from graphcheck.harness.running.limits import Limits
from graphcheck.harness.running.stacks import moved
from graphcheck.harness.running.stall import Watch
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, EvidenceEvent, ExitEvent, Phase, PhaseEvent
from graphcheck.schema.evidence import Evidence
from graphcheck.schema.run import AttemptFacts, Stall
from graphcheck.targets.base import Session

T = TypeVar("T")


@dataclass(frozen=True)
class Clock:
    """Where the supervisor gets its time from; `now` is in monotonic seconds."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


SYSTEM_CLOCK = Clock()

OnLook = Callable[[Phase, int], None]
"""Hears of the phase and step of the rank furthest behind, each time the supervisor has looked."""


def supervise(
    session: Session,
    limits: Limits,
    on_event: Callable[[Event], None],
    clock: Clock = SYSTEM_CLOCK,
    on_look: OnLook = lambda phase, step: None,
) -> AttemptFacts:
    """Follows a session to its end, whatever that is, and always kills it.

    Every record goes to `on_event` as it arrives. What happens inside the attempt becomes a fact, not an exception.
    """
    try:
        return _Supervision(session, limits, on_event, clock, on_look).run()
    finally:
        session.kill()


class _Supervision:
    def __init__(
        self, session: Session, limits: Limits, on_event: Callable[[Event], None], clock: Clock, on_look: OnLook
    ) -> None:
        self._session, self._limits, self._clock = session, limits, clock
        self._on_event, self._on_look = on_event, on_look
        self._began = self._polled = clock.now()
        self._watch = Watch(session.num_ranks, limits, self._began)
        self._log: list[ErrorEvent | ExitEvent] = []
        self._evidence: dict[int, Evidence] = {}
        self._phases: list[PhaseEvent] = []
        self._released = self._has_died = False
        self._grace = limits.after_death
        self._next_look = self._began

    def run(self) -> AttemptFacts:
        stall: Stall | None = None
        lost: tuple[ErrorEvent, ...] = ()
        try:
            while stall is None and not self._watch.all_exited and self._grace >= 0:
                self._poll(self._limits.poll)
                if not self._has_died:
                    self._release_when_finished()
                    stall = self._stall()
        except _SessionLost as failure:
            lost = (self._describe(failure.error),)
        return AttemptFacts(
            num_ranks=self._session.num_ranks,
            exits=tuple(event for event in self._log if isinstance(event, ExitEvent)),
            errors=(*with_consequences(self._log), *lost),
            evidence=self._evidence,
            stall=stall,
            seconds=_phase_seconds(self._phases) | {"wall": self._clock.now() - self._began},
        )

    def _poll(self, timeout: float) -> None:
        events = self._ask(lambda: self._session.events(timeout))
        now = self._clock.now()
        seconds = now - self._polled
        if seconds > self._limits.late_poll:
            # Whatever held the supervisor up may have held the ranks up too: it cannot know that they stood still, nor
            # that the peers of a dead one had so long to speak.
            self._watch.restart(now)
            seconds = self._limits.poll
        if self._has_died:
            self._grace -= seconds
        self._polled = now
        for event in events:
            self._take(event, now)
        self._watch.see_journals(self._ask(self._session.journals), now)
        if self._watch.busy:
            self._on_look(*self._watch.place)

    def _take(self, event: Event, now: float) -> None:
        self._on_event(event)
        self._watch.see_event(event, now)
        if isinstance(event, PhaseEvent):
            self._phases.append(event)
        elif isinstance(event, EvidenceEvent):
            self._evidence[event.rank] = event.evidence
        elif isinstance(event, ErrorEvent):
            self._log.append(event)
            self._has_died |= event.kind != "request"
        elif isinstance(event, ExitEvent):
            self._take_exit(event)

    def _take_exit(self, event: ExitEvent) -> None:
        early = not self._watch.finished(event.rank)
        if early and not is_bad(event):
            self._log.append(
                ErrorEvent(
                    rank=event.rank,
                    kind="crash",
                    error=EARLY_EXIT,
                    message="left with status 0 before its work was done",
                    phase=self._watch.phase(event.rank),
                )
            )
        self._log.append(event)
        self._has_died |= early or is_bad(event)

    def _release_when_finished(self) -> None:
        if self._watch.all_finished and not self._released:
            self._released = True
            self._watch.release(self._clock.now())
            self._ask(self._session.release)

    def _stall(self) -> Stall | None:
        now = self._clock.now()
        if not self._watch.busy:
            return None
        if self._watch.still(now) >= self._watch.limit:
            return self._look_twice() if now >= self._next_look else None
        # What has not moved for half its limit may be about to hang: that is for the limit to say.
        if self._watch.stepless(now) > self._watch.ceiling and self._watch.still(now) < self._watch.limit / 2:
            return self._give_up("timeout", "moved but ended no step", self._watch.stepless(now), self._dump())
        return None

    def _look_twice(self) -> Stall | None:
        """At the limit: a hang if the stacks stand still too, a time-out if they have moved up to the ceiling."""
        first = self._dump()
        self._clock.sleep(self._limits.between_dumps)
        second = self._dump()
        self._polled = self._clock.now()
        self._poll(0.0)
        still = self._watch.still(self._polled)
        if self._has_died or not self._watch.busy or still < self._watch.limit:
            return None
        if not moved(self._watch.busy, first, second):
            return self._give_up("hang", "stood still", still, second)
        if still >= self._watch.ceiling:
            return self._give_up("timeout", "were at work but counted no progress", still, second)
        self._next_look = self._polled + min(self._watch.limit, self._watch.ceiling - still)
        return None

    def _give_up(self, kind: Literal["hang", "timeout"], what: str, seconds: float, stacks: Mapping[int, str]) -> Stall:
        phase, step = self._watch.place
        limit = self._watch.limit if kind == "hang" else self._watch.ceiling
        busy = self._watch.busy
        ranks = f"rank{'s' if len(busy) > 1 else ''} {', '.join(map(str, busy))}"
        where = " in" if self._watch.are_together else ", the one furthest behind in"
        return Stall(
            kind=kind,
            phase=phase,
            step=step,
            limit_seconds=limit,
            stalled_seconds=seconds,
            journals=tuple(self._ask(self._session.journals)),
            stacks=dict(stacks),
            reason=f"{ranks} {what} for {seconds:.2f} s{where} {phase}, step {step} (limit {limit:g} s)",
        )

    def _dump(self) -> Mapping[int, str]:
        return self._ask(self._session.dump)

    def _ask(self, question: Callable[[], T]) -> T:
        """What the session answers.

        Raises:
            _SessionLost: it cannot; an error of those who listen to the supervisor is no such thing.
        """
        try:
            return question()
        except (TargetError, OSError) as error:  # out of open files, of memory; a pipe that broke
            raise _SessionLost(error) from error

    def _describe(self, error: TargetError | OSError) -> ErrorEvent:
        """No rank's own error: it is put down to the first, in the place of the one furthest behind."""
        phase, step = self._watch.place
        return ErrorEvent(
            rank=0,
            kind="crash",
            error=SESSION_LOST,
            message=f"at step {step}: {type(error).__name__}: {error}",
            phase=phase,
            consequence=self._has_died,
        )


class _SessionLost(Exception):
    """The supervisor can no longer follow its ranks."""

    def __init__(self, error: TargetError | OSError) -> None:
        super().__init__(error)
        self.error = error


def _phase_seconds(events: Iterable[PhaseEvent]) -> dict[str, float]:
    """Seconds in each phase that has ended, on the rank that took longest."""
    per_rank: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    current: dict[int, PhaseEvent] = {}
    for event in events:
        last = current.get(event.rank)
        if last is not None:
            per_rank[event.rank][last.phase] += event.seconds - last.seconds
        current[event.rank] = event
    longest: dict[str, float] = {}
    for seconds in per_rank.values():
        longest |= {phase: max(spent, longest.get(phase, 0.0)) for phase, spent in seconds.items()}
    return longest
