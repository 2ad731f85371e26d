"""The supervisor: it waits for those who work, gives up on those who do not, and leaves nothing running."""

import errno
import re
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from graphcheck.harness.judging.death import (
    EARLY_EXIT,
    SESSION_LOST,
    describe_exit,
    first_bad_exit,
    first_line,
    with_consequences,
)
from graphcheck.harness.running.limits import Limits
from graphcheck.harness.running.supervise import Clock, supervise
from graphcheck.schema.errors import TargetError
from graphcheck.schema.events import ErrorEvent, Event, EvidenceEvent, ExitEvent, PhaseEvent, StepEvent
from graphcheck.schema.evidence import Evidence
from graphcheck.schema.journal import Journal
from graphcheck.schema.run import AttemptFacts
from tests.fake_world import VirtualClock

LIMITS = Limits()


@dataclass
class ScriptedSession:
    """Ranks that follow a time table: events by second, journals and stacks as functions of the time."""

    table: Sequence[tuple[float, Event]]
    journal: Callable[[int, float], Journal] | None = None
    stack: Callable[[int, float], str] = lambda rank, now: "line 1 in step"
    num_ranks: int = 1
    poll_takes: float = 0.0
    clock: VirtualClock = field(default_factory=VirtualClock)
    released_at: float | None = None
    num_kills: int = 0
    after_release: Sequence[Event] = ()

    def events(self, timeout: float) -> Sequence[Event]:
        self.clock.sleep(max(timeout, self.poll_takes))
        if self.released_at is not None and self.after_release:
            self.table = [*self.table, *((self.clock.now(), event) for event in self.after_release)]
            self.after_release = ()
        due = [event for second, event in self.table if second <= self.clock.now()]
        self.table = [entry for entry in self.table if entry[0] > self.clock.now()]
        return due

    def journals(self) -> Sequence[Journal]:
        if self.journal is None:
            return []
        return [self.journal(rank, self.clock.now()) for rank in range(self.num_ranks)]

    def release(self) -> None:
        assert self.released_at is None, "released twice"
        self.released_at = self.clock.now()

    def dump(self) -> Mapping[int, str]:
        return {rank: self.stack(rank, self.clock.now()) for rank in range(self.num_ranks)}

    def kill(self) -> None:
        self.num_kills += 1

    def supervise(self, limits: Limits = LIMITS) -> AttemptFacts:
        return supervise(self, limits, lambda event: None, Clock(self.clock.now, self.clock.sleep))


def phase(name: str, rank: int = 0, seconds: float = 0.0) -> PhaseEvent:
    return PhaseEvent.model_validate({"rank": rank, "phase": name, "seconds": seconds})


def step(rank: int = 0, seconds: float = 0.01) -> StepEvent:
    one = (1,)
    return StepEvent(
        rank=rank,
        step=1,
        phase="decode",
        requests=("p",),
        index=one,
        argmax=one,
        ids=one,
        finite=(True,),
        live=1,
        seconds=seconds,
    )


def crash(rank: int = 0, message: str = "boom", kind: str = "crash") -> ErrorEvent:
    return ErrorEvent.model_validate(
        {"rank": rank, "kind": kind, "error": "RuntimeError", "message": message, "phase": "decode"}
    )


DECODING: list[tuple[float, Event]] = [(0.1, phase("decode")), (0.2, step()), (0.3, step())]


def standing(rank: int, now: float) -> Journal:
    return Journal(rank=rank, phase="decode", step=2, collective=4, beat=int(100 * now) + 1)


def test_a_right_run_is_released_once_all_have_finished_and_ends_when_all_have_left() -> None:
    table = [(1.0, phase("done", 0)), (2.0, phase("done", 1))]
    session = ScriptedSession(
        table, num_ranks=2, after_release=[ExitEvent(rank=1, status=0), ExitEvent(rank=0, status=0)]
    )
    facts = session.supervise()
    assert session.released_at == pytest.approx(2.0, abs=0.05)
    assert [(event.rank, event.status) for event in facts.exits] == [(1, 0), (0, 0)]
    assert (facts.stall, facts.errors, facts.num_ranks, session.num_kills) == (None, (), 2, 1)


def test_a_hang_is_found_at_the_limit_with_journals_and_stacks_of_all_ranks() -> None:
    session = ScriptedSession(list(DECODING), standing, num_ranks=2)
    stall = session.supervise().stall
    assert stall is not None
    assert (stall.kind, stall.phase, stall.step, stall.limit_seconds) == ("hang", "decode", 2, 2.0)
    assert 2.0 <= stall.stalled_seconds <= 2.0 + 0.5
    assert [journal.rank for journal in stall.journals] == [0, 1]
    assert stall.stacks == {0: "line 1 in step", 1: "line 1 in step"}
    assert session.num_kills == 1


@pytest.mark.parametrize(
    ("ahead", "where"),
    [
        ({}, "ranks 0, 1 stood still for 2.00 s in decode, step 2 (limit 2 s)"),
        (
            {"phase": "prefill", "step": 3},
            "ranks 0, 1 stood still for 2.00 s, the one furthest behind in decode, ste",
        ),
    ],
)
def test_ranks_that_stand_in_different_places_are_not_told_to_stand_in_one(
    ahead: dict[str, object], where: str
) -> None:
    def apart(rank: int, now: float) -> Journal:
        return standing(rank, now).model_copy(update=ahead if rank else {})

    stall = ScriptedSession(list(DECODING), apart, num_ranks=2).supervise().stall
    assert stall is not None
    assert re.sub(r"2\.\d\d s", "2.00 s", stall.reason).startswith(where)


def test_beats_alone_do_not_keep_an_attempt_alive_but_a_counter_does() -> None:
    def moving(rank: int, now: float) -> Journal:
        return standing(rank, now).model_copy(update={"step": int(now) if now < 20 else 20})

    stall = ScriptedSession(list(DECODING), moving).supervise().stall
    assert stall is not None
    assert stall.step == 20


def test_stacks_that_move_at_the_limit_are_slow_not_hung() -> None:
    session = ScriptedSession(
        [*DECODING, (9.0, step()), (9.1, phase("done"))],
        standing,
        stack=lambda rank, now: f"line {now} in step",
        after_release=[ExitEvent(rank=0, status=0)],
    )
    assert session.supervise().stall is None


def test_stacks_that_move_up_to_the_ceiling_are_a_time_out() -> None:
    stall = ScriptedSession(list(DECODING), standing, stack=lambda rank, now: f"line {now} in step").supervise().stall
    assert stall is not None
    assert (stall.kind, stall.limit_seconds) == ("timeout", 30.0)
    assert 30.0 <= stall.stalled_seconds <= 31.0


def test_a_rank_that_was_slow_and_then_hangs_is_a_hang() -> None:
    session = ScriptedSession(list(DECODING), standing, stack=lambda rank, now: f"line {min(now, 7)} in step")
    stall = session.supervise().stall
    assert stall is not None
    assert stall.kind == "hang"
    assert stall.stalled_seconds < 12


def test_a_rank_that_waits_for_its_peers_in_a_moving_loop_is_a_hang() -> None:
    def waiting(rank: int, now: float) -> str:
        return f'File "c.py", line {now} in wait_for_peers\nFile "e.py", line 3 in step'

    stall = ScriptedSession(list(DECODING), standing, stack=waiting).supervise().stall
    assert stall is not None
    assert stall.kind == "hang"


def test_progress_between_the_two_dumps_is_no_hang() -> None:
    late: list[float] = []

    def stack(rank: int, now: float) -> str:
        late.append(now)
        return "line 1 in step"

    def wakes_up(rank: int, now: float) -> Journal:
        return standing(rank, now).model_copy(update={"step": 2 + len(late)} if now < 10 else {"step": 99})

    stall = ScriptedSession(list(DECODING), wakes_up, stack=stack).supervise().stall
    assert stall is not None
    assert stall.step == 99, "every look before second 10 was followed by progress"


def test_counters_that_move_without_a_step_are_a_time_out() -> None:
    def churning(rank: int, now: float) -> Journal:
        return standing(rank, now).model_copy(update={"collective": int(10 * now)})

    stall = ScriptedSession(list(DECODING), churning).supervise().stall
    assert stall is not None
    assert (stall.kind, stall.limit_seconds) == ("timeout", 30.0)


def test_a_step_that_moved_a_little_before_it_stuck_is_a_hang_of_ranks_that_share_a_device() -> None:
    shared = Limits.for_device("cuda", shared=True)

    def stuck_in_its_middle(rank: int, now: float) -> Journal:
        return Journal(rank=rank, phase="decode", step=2, collective=min(int(10 * now), 6), beat=1)

    stall = ScriptedSession(list(DECODING), stuck_in_its_middle).supervise(shared).stall
    assert stall is not None
    assert (stall.kind, stall.limit_seconds) == ("hang", shared.ceiling)


def test_a_supervisor_that_was_held_up_itself_starts_the_clock_again() -> None:
    held_up = ScriptedSession([*DECODING, (30.0, phase("done"))], standing, poll_takes=1.9)
    held_up.after_release = [ExitEvent(rank=0, status=0)]
    assert held_up.supervise().stall is None
    on_time = ScriptedSession([*DECODING, (30.0, phase("done"))], standing, poll_takes=0.4)
    assert on_time.supervise().stall is not None


def test_a_rank_that_never_beats_is_a_hang_at_start() -> None:
    silent = ScriptedSession([], lambda rank, now: Journal(rank=rank, phase="start", beat=rank), num_ranks=2)
    stall = silent.supervise().stall
    assert stall is not None
    assert (stall.phase, stall.limit_seconds) == ("start", LIMITS.start)


def test_loading_and_capture_may_take_long_while_they_count_units() -> None:
    def capturing(rank: int, now: float) -> Journal:
        return Journal(rank=rank, phase="capture", unit=int(now // 100), beat=1)

    session = ScriptedSession([(350.0, phase("done"))], capturing, after_release=[ExitEvent(rank=0, status=0)])
    assert session.supervise().stall is None


def test_a_rank_that_does_not_leave_is_a_hang_in_teardown() -> None:
    session = ScriptedSession(
        [(1.0, phase("done", 0)), (1.0, phase("done", 1))], num_ranks=2, after_release=[ExitEvent(rank=0, status=0)]
    )
    stall = session.supervise().stall
    assert stall is not None
    assert (stall.kind, stall.phase, stall.limit_seconds) == ("hang", "teardown", LIMITS.teardown)
    assert stall.reason.startswith("rank 1 stood still")


def test_after_a_death_the_peers_get_a_short_grace_to_say_what_they_saw() -> None:
    table: list[tuple[float, Event]] = [(1.0, ExitEvent(rank=0, signal=9))]
    table += [(1.5, crash(1, "Connection reset by peer")), (9.0, crash(1, "late"))]
    session = ScriptedSession(table, num_ranks=2)
    facts = session.supervise()
    assert [(error.message, error.consequence) for error in facts.errors] == [("Connection reset by peer", True)]
    assert session.clock.now() == pytest.approx(1.0 + LIMITS.after_death, abs=0.1)
    assert (facts.stall, session.released_at, session.num_kills) == (None, None, 1)


def test_a_late_supervisor_still_hears_the_rank_that_caused_a_death_out() -> None:
    reset, illegal = "Connection reset by peer", "CUDA error: an illegal memory access was encountered"
    session = ScriptedSession([(1.0, crash(0, reset)), (6.5, crash(1, illegal))], num_ranks=2)

    def held_up(event: Event) -> None:
        session.clock.sleep(5.0 if session.clock.now() < 2 else 0.0)

    facts = supervise(session, LIMITS, held_up, Clock(session.clock.now, session.clock.sleep))
    assert [(error.message, error.consequence) for error in facts.errors] == [(reset, True), (illegal, False)]
    assert session.clock.now() == pytest.approx(6.0 + LIMITS.after_death, abs=0.1)


def test_a_supervisor_that_is_always_late_does_not_wait_for_ever_after_a_death() -> None:
    session = ScriptedSession([(1.0, ExitEvent(rank=0, signal=9))], num_ranks=2, poll_takes=1.9)
    assert session.supervise().stall is None


def breaking(session: ScriptedSession, method: str, second: float, error: OSError | TargetError) -> ScriptedSession:
    """The same, of which one method fails from then on."""
    works = getattr(session, method)

    def fail(*args: object) -> object:
        if session.clock.now() < second:
            return works(*args)
        raise error

    setattr(session, method, fail)
    return session


TOO_MANY = OSError(errno.EMFILE, "Too many open files")
GONE = TargetError("server", "it is gone", "look at it")


@pytest.mark.parametrize(
    ("method", "second", "error", "message"),
    [
        ("events", 1.0, TOO_MANY, "at step 2: OSError: [Errno 24] Too many open files"),
        ("journals", 1.0, TOO_MANY, "at step 2: OSError: [Errno 24] Too many open files"),
        ("dump", 0.0, TOO_MANY, "at step 2: OSError: [Errno 24] Too many open files"),
        ("events", 1.0, GONE, "at step 2: TargetError: server: it is gone; look at it"),
    ],
)
def test_a_session_that_fails_leaves_what_was_seen_of_it_and_where_it_was(
    method: str, second: float, error: OSError | TargetError, message: str
) -> None:
    seen = EvidenceEvent(rank=1, evidence=Evidence(captures=4))
    table = [*DECODING, (0.4, seen), (0.5, crash(1, kind="request"))]
    session = breaking(ScriptedSession(table, standing, num_ranks=2), method, second, error)
    facts = session.supervise()
    assert [(one.error, one.phase, one.message) for one in facts.errors] == [
        ("RuntimeError", "decode", "boom"),
        (SESSION_LOST, "decode", message),
    ]
    assert (facts.num_ranks, facts.evidence, facts.stall) == (2, {1: seen.evidence}, None)
    assert session.num_kills == 1


def test_a_session_that_cannot_let_its_ranks_go_is_lost_in_teardown() -> None:
    session = ScriptedSession([(1.0, phase("done"))])
    (lost,) = breaking(session, "release", 0.0, TOO_MANY).supervise().errors
    assert (lost.error, lost.phase) == (SESSION_LOST, "teardown")


def test_a_session_that_fails_once_a_rank_has_died_is_not_the_cause() -> None:
    table = [(0.1, phase("done", 0)), (0.2, ExitEvent(rank=1, signal=9))]
    facts = breaking(ScriptedSession(table, num_ranks=2), "events", 0.5, TOO_MANY).supervise()
    assert [(event.rank, event.signal) for event in facts.exits] == [(1, 9)]
    assert [(error.error, error.consequence) for error in facts.errors] == [(SESSION_LOST, True)]


def test_an_error_of_who_listens_to_the_supervisor_is_not_the_sessions() -> None:
    session = ScriptedSession(list(DECODING))

    def no_space(*about: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    for on_event, on_look in ((no_space, lambda phase, step: None), (lambda event: None, no_space)):
        with pytest.raises(OSError, match="No space left on device"):
            supervise(session, LIMITS, on_event, Clock(session.clock.now, session.clock.sleep), on_look)


def test_an_attempt_whose_ranks_have_all_died_waits_for_nobody() -> None:
    session = ScriptedSession([(1.0, ExitEvent(rank=0, status=1))])
    session.supervise()
    assert session.clock.now() == pytest.approx(1.0, abs=0.1)


def test_leaving_politely_before_the_work_is_done_is_an_error() -> None:
    facts = ScriptedSession([*DECODING, (1.0, ExitEvent(rank=0, status=0))]).supervise()
    assert [(error.error, error.kind, error.phase) for error in facts.errors] == [(EARLY_EXIT, "crash", "decode")]


def test_a_request_that_failed_does_not_end_the_attempt() -> None:
    session = ScriptedSession(
        [(1.0, crash(kind="request")), (3.0, phase("done"))], after_release=[ExitEvent(rank=0, status=0)]
    )
    facts = session.supervise()
    assert session.released_at == pytest.approx(3.0, abs=0.05)
    assert [error.consequence for error in facts.errors] == [False]


def test_the_session_is_killed_when_the_supervisor_itself_fails() -> None:
    session = ScriptedSession(list(DECODING))

    def fail(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervise(session, LIMITS, fail, Clock(session.clock.now, session.clock.sleep))
    assert session.num_kills == 1


def test_seconds_in_each_phase_are_those_of_the_rank_that_took_longest() -> None:
    table: list[tuple[float, Event]] = [(1.0, phase("load", rank, seconds)) for rank, seconds in ((0, 1.0), (1, 1.5))]
    table += [(2.0, phase("decode", rank, seconds)) for rank, seconds in ((0, 4.0), (1, 3.5))]
    table += [(3.0, phase("done", rank, 5.0)) for rank in (0, 1)]
    ends = [ExitEvent(rank=rank, status=0) for rank in (0, 1)]
    facts = ScriptedSession(table, num_ranks=2, after_release=ends).supervise()
    assert {name: facts.seconds[name] for name in ("load", "decode")} == {"load": 3.0, "decode": 1.5}


LOST = "[Rank 0] Connection closed by peer [127.0.0.1]:2345"


@pytest.mark.parametrize(
    ("log", "consequences"),
    [
        ([crash(0), crash(1, LOST)], [False, True]),
        ([crash(1, LOST), crash(0)], [True, False]),
        ([crash(1, LOST), ExitEvent(rank=1, status=1), crash(0)], [True, False]),
        ([crash(1, LOST), ExitEvent(rank=0, signal=9)], [True]),
        ([ExitEvent(rank=0, signal=9), crash(1, "shape mismatch")], [True]),
        ([crash(1, "shape mismatch"), ExitEvent(rank=0, signal=9)], [False]),
        ([crash(0, LOST), crash(1, LOST)], [False, False]),
        ([ExitEvent(rank=0, signal=9), crash(1, kind="request")], [False]),
        ([crash(0), ExitEvent(rank=0, status=1)], [False]),
        ([crash(0, kind="oom"), crash(1, LOST)], [False, True]),
    ],
)
def test_errors_that_another_ranks_death_explains_are_consequences(
    log: list[ErrorEvent | ExitEvent], consequences: list[bool]
) -> None:
    assert [error.consequence for error in with_consequences(log)] == consequences


def test_the_exit_to_blame_is_that_of_the_rank_that_could_say_nothing() -> None:
    exits = [ExitEvent(rank=0, status=1), ExitEvent(rank=1, status=3), ExitEvent(rank=2, signal=signal.SIGKILL)]
    blamed = first_bad_exit(exits, [])
    assert blamed is not None
    assert blamed.rank == 2
    blamed = first_bad_exit(exits[:2], [crash(0, LOST)])
    assert blamed is not None
    assert blamed.rank == 1
    assert first_bad_exit([ExitEvent(rank=0, status=0)], []) is None


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (ExitEvent(rank=1, signal=9), "rank 1 was killed by SIGKILL (signal 9)"),
        (ExitEvent(rank=1, signal=signal.SIGRTMIN + 1), f"rank 1 was killed by signal {signal.SIGRTMIN + 1}"),
        (ExitEvent(rank=0, status=3), "rank 0 left with status 3"),
    ],
)
def test_a_death_by_a_signal_without_a_name_is_told_by_its_number(event: ExitEvent, words: str) -> None:
    assert describe_exit(event) == words


@pytest.mark.parametrize(
    ("message", "line"), [("\nboom\nmore", "boom"), (" \n  boom", "boom"), ("\n", "no message"), ("", "no message")]
)
def test_a_message_that_begins_with_a_blank_line_is_not_told_as_nothing(message: str, line: str) -> None:
    assert first_line(message) == line
