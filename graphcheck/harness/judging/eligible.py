"""Owns how much of a cell's work a graph had to replay, in lane-tokens, by the harness's own count."""

from collections.abc import Iterable, Mapping

from graphcheck.schema.base import AxisValue
from graphcheck.schema.events import StepEvent
from graphcheck.schema.golden import Golden
from graphcheck.schema.suite import Workload


def largest_bucket(settings: Mapping[str, AxisValue]) -> int | None:
    """The largest batch that a graph covers, from the setting `buckets` ("1,2,4,8"); None if the target has none."""
    buckets = settings.get("buckets")
    return None if buckets is None else max(int(bucket) for bucket in str(buckets).split(","))


def is_oversize(step: StepEvent, largest: int | None) -> bool:
    """True for a decode step of more sequences than any bucket holds, counted by its ids, not by what it says."""
    return step.phase == "decode" and largest is not None and len(step.ids) > largest


def eligible_lane_tokens(workload: Workload, golden: Golden, steps: Iterable[StepEvent], largest: int | None) -> int:
    """Tokens that one rank, whose steps these are, had to compute by replay; holds for token-exact answers only.

    The first token of each answer comes from prefill, and a batch above the largest bucket fits no graph.
    """
    decoded = sum(len(golden.prompt(request.id).ids) - 1 for request in workload.requests) * workload.passes
    return decoded - sum(len(step.ids) for step in steps if is_oversize(step, largest))
