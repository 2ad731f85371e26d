"""Eligible work: counted in lane-tokens from golden, suite and buckets, never taken from the engine's word."""

import pytest
from pydantic import ValidationError

from graphcheck.harness.judging.eligible import eligible_lane_tokens, is_oversize, largest_bucket
from graphcheck.schema.events import StepEvent
from graphcheck.schema.golden import Golden
from graphcheck.schema.suite import Request, Workload
from tests.goldens import golden_of


def golden(**lengths: int) -> Golden:
    return golden_of({prompt: range(length) for prompt, length in lengths.items()})


def workload(*prompts: str, passes: int = 1) -> Workload:
    requests = tuple(Request(id=prompt, prompt_ids=(1,), max_new_tokens=99) for prompt in prompts)
    return Workload(suite="s", passes=passes, requests=requests)


def decode(num_lanes: int, *, phase: str = "decode", live: int | None = None) -> StepEvent:
    return StepEvent(
        rank=0,
        step=1,
        phase=phase,  # type: ignore[arg-type]
        requests=tuple(f"p{lane}" for lane in range(num_lanes)),
        index=(1,) * num_lanes,
        argmax=(1,) * num_lanes,
        ids=(1,) * num_lanes,
        finite=(True,) * num_lanes,
        live=num_lanes if live is None else live,
    )


def test_the_first_token_of_each_answer_comes_from_prefill() -> None:
    assert eligible_lane_tokens(workload("a", "b"), golden(a=12, b=5), [], None) == 11 + 4


def test_prompts_outside_the_workload_do_not_count() -> None:
    assert eligible_lane_tokens(workload("b"), golden(a=12, b=5), [], None) == 4


def test_every_pass_counts() -> None:
    assert eligible_lane_tokens(workload("a", passes=3), golden(a=12), [], None) == 33


def test_a_suite_of_single_tokens_has_nothing_eligible() -> None:
    assert eligible_lane_tokens(workload("a", "b"), golden(a=1, b=1), [], None) == 0


def test_steps_above_the_largest_bucket_are_taken_off_by_their_ids() -> None:
    steps = [decode(3), decode(3), decode(2), decode(1)]
    assert eligible_lane_tokens(workload("a"), golden(a=20), steps, 2) == 19 - 6


@pytest.mark.parametrize("lie", [99, 0])
def test_an_engine_cannot_lie_about_its_live_lanes(lie: int) -> None:
    with pytest.raises(ValidationError, match=f"live is {lie} for 2 requests"):
        decode(2, live=lie)


def test_prefill_is_never_oversize() -> None:
    assert not is_oversize(decode(5, phase="prefill"), 2)


def test_the_largest_bucket_comes_from_the_settings() -> None:
    assert largest_bucket({"buckets": "1,2,8"}) == 8
    assert largest_bucket({"buckets": 4}) == 4
    assert largest_bucket({"tp": 2}) is None


def test_without_buckets_every_decode_step_is_eligible() -> None:
    assert eligible_lane_tokens(workload("a"), golden(a=20), [decode(1000)], None) == 19
