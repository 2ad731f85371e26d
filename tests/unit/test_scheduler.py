"""The schedule as a function of requests and tokens: admission, lanes, pages, ends."""

import pytest

from graphcheck.engine.blocks import DUMMY_PAGE, BlockAllocator
from graphcheck.engine.errors import RequestError
from graphcheck.engine.request import Request
from graphcheck.engine.scheduler import Scheduler, Step


def make(
    *, lanes: int = 2, context: int = 64, num_pages: int = 8, page_size: int = 4
) -> tuple[Scheduler, BlockAllocator]:
    blocks = BlockAllocator(num_pages, page_size)
    return Scheduler(lanes=lanes, context=context, blocks=blocks), blocks


def drive(scheduler: Scheduler, token: int = 1) -> list[tuple[int, str, tuple[str, ...]]]:
    """Runs to the end with one token everywhere; returns (step, phase, requests)."""
    trace = []
    while (step := scheduler.next_step()) is not None:
        trace.append((step.number, step.phase, tuple(sequence.request.id for sequence in step.sequences)))
        scheduler.commit(step, [token] * len(step.sequences))
    return trace


def submit(scheduler: Scheduler, *requests: Request) -> None:
    for request in requests:
        scheduler.submit(request)


def test_prefill_comes_before_decode_and_steps_are_never_mixed() -> None:
    scheduler, _ = make()
    submit(scheduler, Request("a", (1, 2), max_new_tokens=3), Request("b", (1,), max_new_tokens=2))
    assert drive(scheduler) == [
        (0, "prefill", ("a",)),
        (1, "prefill", ("b",)),
        (2, "decode", ("a", "b")),
        (3, "decode", ("a",)),
    ]


def test_waiting_request_takes_the_lane_of_one_that_ended() -> None:
    scheduler, _ = make(lanes=1)
    submit(scheduler, Request("a", (1,), max_new_tokens=2), Request("b", (1,), max_new_tokens=2))
    assert [step[2] for step in drive(scheduler)] == [("a",), ("a",), ("b",), ("b",)]


def test_arrival_is_a_step_number_and_idle_steps_are_skipped() -> None:
    scheduler, _ = make()
    submit(scheduler, Request("late", (1,), arrival=9, max_new_tokens=2), Request("now", (1,), max_new_tokens=2))
    assert drive(scheduler) == [
        (0, "prefill", ("now",)),
        (1, "decode", ("now",)),
        (9, "prefill", ("late",)),
        (10, "decode", ("late",)),
    ]


def test_lanes_move_up_when_a_sequence_leaves() -> None:
    scheduler, _ = make(lanes=3)
    submit(scheduler, *(Request(name, (1,), max_new_tokens=count) for name, count in (("a", 3), ("b", 2), ("c", 4))))
    assert [step[2] for step in drive(scheduler) if step[1] == "decode"] == [("a", "b", "c"), ("a", "c"), ("c",)]


def test_stop_token_ends_a_sequence_and_is_kept() -> None:
    scheduler, _ = make()
    submit(scheduler, Request("a", (1,), max_new_tokens=9, stop_ids=(7,)))
    step = scheduler.next_step()
    assert step is not None
    (finished,) = scheduler.commit(step, [7])
    assert (finished.reason, finished.sequence.output_ids) == ("stop", [7])


def test_forced_sequence_ends_with_its_forced_tokens() -> None:
    scheduler, _ = make()
    submit(scheduler, Request("a", (1,), max_new_tokens=9, forced_ids=(3, 4)))
    assert len(drive(scheduler)) == 2


def test_pages_grow_on_demand_and_come_back() -> None:
    scheduler, blocks = make(num_pages=3)
    submit(scheduler, Request("a", (1, 2, 3), max_new_tokens=4))
    step = scheduler.next_step()
    assert step is not None
    (sequence,) = step.sequences
    lengths = []
    while step is not None:
        lengths.append(len(sequence.block_table))
        assert DUMMY_PAGE not in sequence.block_table
        scheduler.commit(step, [1])
        step = scheduler.next_step()
    assert lengths == [1, 1, 2, 2]
    assert blocks.can_reserve(3)


def test_admission_waits_for_pages_that_running_sequences_may_still_need() -> None:
    scheduler, _ = make(lanes=2, num_pages=3)
    submit(scheduler, Request("a", (1,), max_new_tokens=8), Request("b", (1,), max_new_tokens=8))
    first = drive(scheduler)
    assert all(len(step[2]) == 1 for step in first)


def test_just_freed_page_is_used_next() -> None:
    blocks = BlockAllocator(4, 4)
    first: list[int] = []
    blocks.grow(first, 8)
    pages = list(first)
    blocks.release(first, 0)
    second: list[int] = []
    blocks.grow(second, 8)
    assert second == pages


def test_same_tokens_give_the_same_schedule_and_other_tokens_another() -> None:
    def steps(token_of: dict[str, int]) -> list[tuple[int, tuple[str, ...]]]:
        scheduler, _ = make(lanes=2)
        submit(scheduler, *(Request(name, (1,), max_new_tokens=4, stop_ids=(9,)) for name in ("a", "b", "c")))
        trace = []
        while (step := scheduler.next_step()) is not None:
            trace.append(_shape(step))
            scheduler.commit(step, [token_of.get(sequence.request.id, 1) for sequence in step.sequences])
        return trace

    assert steps({}) == steps({})
    assert steps({}) != steps({"a": 9})


def _shape(step: Step) -> tuple[int, tuple[str, ...]]:
    return step.number, tuple(sequence.request.id for sequence in step.sequences)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request("x", (), max_new_tokens=1), "at least one token"),
        (Request("x", (1,) * 60, max_new_tokens=5), "context of 64"),
        (Request("x", (1,) * 40, max_new_tokens=5), "KV pages of 8"),
    ],
)
def test_impossible_request_is_refused_at_once(request_: Request, message: str) -> None:
    scheduler, _ = make()
    with pytest.raises(RequestError, match=message) as error:
        scheduler.submit(request_)
    assert error.value.request_id == "x"
