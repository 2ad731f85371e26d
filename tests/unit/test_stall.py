"""What counts as progress, how long may pass without any, and when a stack has moved."""

import pytest

from graphcheck.harness.running.limits import Limits
from graphcheck.harness.running.stacks import above_wait, moved
from graphcheck.harness.running.stall import Watch
from graphcheck.schema.events import ErrorEvent, EvidenceEvent, ExitEvent, FinishedEvent, PhaseEvent, StepEvent
from graphcheck.schema.evidence import Evidence
from graphcheck.schema.journal import Journal

LIMITS = Limits()


def journal(rank: int = 0, **fields: object) -> Journal:
    return Journal.model_validate({"rank": rank, "phase": "decode", "beat": 1, **fields})


def step(rank: int = 0, number: int = 1, **fields: object) -> StepEvent:
    return StepEvent.model_validate(
        {
            "rank": rank,
            "step": number,
            "phase": "decode",
            "requests": ["p"],
            "index": [1],
            "argmax": [1],
            "ids": [1],
            "finite": [True],
            "live": 1,
            **fields,
        }
    )


def watch(num_ranks: int = 1) -> Watch:
    return Watch(num_ranks, LIMITS, now=0.0)


@pytest.mark.parametrize("counter", ["step", "collective", "unit"])
def test_any_counter_that_moves_is_progress(counter: str) -> None:
    seen = watch()
    seen.see_journals([journal()], 1.0)
    seen.see_journals([journal(**{counter: 1})], 5.0)
    assert seen.still(7.0) == 2.0


def test_a_new_phase_is_progress() -> None:
    seen = watch()
    seen.see_journals([journal(phase="load")], 1.0)
    seen.see_journals([journal(phase="capture")], 5.0)
    assert seen.still(7.0) == 2.0


def test_the_first_beat_is_progress_and_later_ones_are_not() -> None:
    seen = watch()
    seen.see_journals([journal(phase="start", beat=0)], 1.0)
    seen.see_journals([journal(phase="start", beat=1)], 3.0)
    seen.see_journals([journal(phase="start", beat=2)], 5.0)
    assert seen.still(7.0) == 4.0


def test_a_finished_rank_does_not_hide_that_another_stands_still() -> None:
    seen = watch(2)
    seen.see_journals([journal(0), journal(1)], 1.0)
    seen.see_journals([journal(0), journal(1, step=1, finished=True)], 4.0)
    seen.see_journals([journal(0), journal(1, step=2, collective=9, finished=True)], 5.0)
    seen.see_event(FinishedEvent(rank=1, request="p", reason="stop", num_tokens=3), 6.0)
    assert (seen.busy, seen.still(7.0)) == ([0], 6.0)


def test_one_rank_that_moves_keeps_the_attempt_alive() -> None:
    seen = watch(2)
    for second in range(1, 9):
        seen.see_journals([journal(0), journal(1, collective=second)], float(second))
    assert seen.still(8.5) == 0.5


def test_events_are_progress_for_a_target_without_journals() -> None:
    seen = watch()
    seen.see_event(PhaseEvent(rank=0, phase="load", seconds=0.0), 1.0)
    assert (seen.still(3.0), seen.limit) == (2.0, LIMITS.load)
    seen.see_event(step(), 4.0)
    assert (seen.still(6.0), seen.place) == (2.0, ("decode", 1))
    seen.see_event(PhaseEvent(rank=0, phase="prefill", seconds=5.0), 7.0)
    assert seen.stepless(8.0) == 1.0
    seen.see_event(PhaseEvent(rank=0, phase="prefill", seconds=8.0), 9.0)
    assert seen.stepless(10.0) == 3.0


def test_errors_and_evidence_are_not_progress() -> None:
    seen = watch()
    seen.see_event(ErrorEvent(rank=0, kind="request", error="E", message="", phase="decode"), 2.0)
    seen.see_event(EvidenceEvent(rank=0, evidence=Evidence()), 3.0)
    assert seen.still(4.0) == 4.0


def test_a_rank_is_finished_by_its_journal_or_by_the_phase_it_reports() -> None:
    seen = watch(2)
    seen.see_journals([journal(0, finished=True), journal(1)], 1.0)
    assert not seen.all_finished
    seen.see_event(PhaseEvent(rank=1, phase="done", seconds=1.0), 2.0)
    assert seen.all_finished


def test_after_the_release_a_rank_is_busy_until_it_has_left() -> None:
    seen = watch(2)
    for rank in (0, 1):
        seen.see_event(PhaseEvent(rank=rank, phase="done", seconds=1.0), 1.0)
    assert seen.busy == []
    seen.release(2.0)
    seen.see_event(ExitEvent(rank=0, status=0), 3.0)
    assert (seen.busy, seen.place[0], seen.limit, seen.still(5.0)) == ([1], "teardown", LIMITS.teardown, 3.0)


def test_before_every_rank_was_heard_only_the_start_limit_runs() -> None:
    seen = watch(2)
    seen.see_journals([journal(0), journal(1, phase="start", beat=0)], 1.0)
    assert seen.limit == LIMITS.start


@pytest.mark.parametrize("phase", ["start", "load", "capture"])
def test_phases_without_steps_have_fixed_limits(phase: str) -> None:
    seen = watch()
    seen.see_journals([journal(phase=phase)], 1.0)
    assert seen.limit == seen.ceiling == getattr(LIMITS, phase)


@pytest.mark.parametrize(("slowest", "limit"), [(None, 30.0), (0.01, 2.0), (0.1, 2.0), (0.2, 4.0), (9.0, 30.0)])
def test_the_limit_of_a_step_follows_the_slowest_between_floor_and_ceiling(slowest: float | None, limit: float) -> None:
    assert LIMITS.limit("decode", slowest) == pytest.approx(limit)


def test_floors_differ_by_device_and_shared_devices_start_at_the_ceiling() -> None:
    assert [Limits.for_device(device).floor for device in ("cpu", "cuda")] == [2.0, 5.0]
    assert Limits.for_device("cuda", shared=True).limit("decode", 0.001) == Limits().ceiling


def test_the_first_step_of_each_kind_and_shape_is_left_out() -> None:
    seen = watch()
    seen.see_journals([journal()], 0.0)
    for first in (step(seconds=8.0), step(seconds=8.0, bucket=4), step(seconds=8.0, bucket=4, replayed=True)):
        seen.see_event(first, 1.0)
    seen.see_event(step(seconds=8.0, phase="prefill"), 1.0)
    assert seen.limit == min(LIMITS.factor * 8.0, LIMITS.ceiling), "no other step has been timed"
    seen.see_event(step(seconds=0.3, bucket=4), 1.0)
    assert seen.limit == pytest.approx(6.0)


def test_a_step_that_does_not_state_its_time_is_timed_from_the_one_before() -> None:
    seen = watch()
    for number, now in enumerate((1.0, 1.5, 1.75)):
        seen.see_event(step(number=number), now)
    assert seen.limit == pytest.approx(20 * 0.5)


def test_counters_that_move_without_a_step_are_told_apart() -> None:
    seen = watch()
    for second in range(1, 40):
        seen.see_journals([journal(step=7, collective=second)], float(second))
    assert (seen.still(39.0), seen.stepless(39.0)) == (0.0, 38.0)
    seen.see_event(step(), 39.0)
    assert seen.stepless(39.0) == 0.0


def test_a_peer_that_is_still_capturing_excuses_a_rank_without_steps() -> None:
    seen = watch(2)
    for second in range(1, 40):
        seen.see_journals([journal(0), journal(1, phase="capture", unit=second)], float(second))
    assert seen.stepless(39.0) == 0.0


def test_the_place_is_that_of_the_rank_furthest_behind() -> None:
    seen = watch(3)
    seen.see_journals([journal(0, step=9, phase="prefill"), journal(1, step=8), journal(2, step=1, finished=True)], 1.0)
    assert seen.place == ("decode", 8)
    seen.see_journals([journal(0, step=0, phase="capture")], 2.0)
    assert seen.place == ("capture", 0)


WAITING = """Thread 0x1 (most recent call first):
  File "c.py", line {spin} in poll_once
  File "c.py", line 9 in wait_for_peers
  File "c.py", line 4 in {outer}
  File "engine.py", line {line} in decode
  File "rank.py", line 1 in main"""


def stack(spin: int = 1, line: int = 7, outer: str = "launch") -> str:
    return WAITING.format(spin=spin, line=line, outer=outer)


def test_movement_inside_a_declared_wait_is_not_movement() -> None:
    assert not moved([0], {0: stack(spin=1)}, {0: stack(spin=2)})


def test_movement_above_a_declared_wait_is() -> None:
    assert moved([0], {0: stack(line=7)}, {0: stack(line=8)})


def test_the_stack_is_cut_at_the_outermost_wait() -> None:
    nested = stack(outer="wait_for_collective")
    assert above_wait(nested, ["wait_for_peers", "wait_for_collective"])[0].endswith("in decode")


def test_a_function_whose_name_only_contains_a_wait_is_no_wait() -> None:
    assert len(above_wait('File "x", line 1 in wait_for_peers_report', ["wait_for_peers"])) == 1


def test_without_a_declared_wait_the_whole_stack_counts() -> None:
    assert moved([0], {0: stack(spin=1)}, {0: stack(spin=2)}, declared_waits=["wait_for_godot"])


def test_only_the_ranks_asked_about_count_and_one_without_a_stack_did_nothing() -> None:
    first, second = {0: stack(line=1), 1: stack()}, {0: stack(line=2), 1: stack()}
    assert not moved([1, 2], first, second)
    assert moved([0, 1], first, second)


def test_a_hang_in_the_first_steps_is_not_waited_for_until_the_ceiling() -> None:
    seen = watch()
    assert seen.limit == LIMITS.start
    seen.see_event(step(seconds=0.01), 1.0)
    assert seen.limit == LIMITS.floor, "a first step pays for warming up, so it bounds the others from above"
    seen.see_event(step(seconds=0.02, bucket=4), 2.0)
    seen.see_event(step(seconds=0.2, bucket=4), 3.0)
    assert seen.limit == pytest.approx(LIMITS.factor * 0.2)
