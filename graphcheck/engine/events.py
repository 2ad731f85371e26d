"""Owns what an engine reports while it runs: plain records, one a step and one a finished request."""

from dataclasses import dataclass
from typing import Literal

from graphcheck.engine.audit import Breach
from graphcheck.engine.request import FinishReason


@dataclass(frozen=True)
class StepReport:
    """One step. Parallel tuples: sequence i of request `requests[i]` took `next_ids[i]` as output `index[i]`.

    `argmax_ids` is what was computed, `next_ids` what is fed on; `bucket` the rows of a decode step (with exact shapes
    the live ones alone), None in prefill and above the largest bucket; `fallback` why a decode step that a graph should
    have served ran eager; `logits_sha` one digest a row; `top` each row's best (id, logit), best first.
    """

    number: int
    phase: Literal["prefill", "decode"]
    requests: tuple[str, ...]
    index: tuple[int, ...]
    argmax_ids: tuple[int, ...]
    next_ids: tuple[int, ...]
    finite: tuple[bool, ...]
    bucket: int | None
    replayed: bool
    fallback: str | None
    seconds: float
    logits_sha: tuple[str, ...] | None
    top: tuple[tuple[tuple[int, float], ...], ...] | None


@dataclass(frozen=True)
class FinishReport:
    """A request that ended."""

    request: str
    reason: FinishReason
    num_tokens: int


@dataclass(frozen=True)
class Counters:
    """What a rank did, counted where it was done. `breaches` are what the audit found; None if there was none."""

    captures: int
    replays: int
    replayed_lane_tokens: int
    eager_lane_tokens: int
    padded_lanes: int
    fallbacks: dict[str, int]
    collectives: int
    sites: dict[str, dict[str, int]]
    breaches: tuple[Breach, ...] | None
