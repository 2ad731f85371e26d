"""Owns what a near tie is: a wrong token that the golden ranks so close behind its own that rounding may swap the two.

Distances are in units in the last place (ULP) of the cell's dtype at the magnitude of the golden's best logit. The
bound is measured, see `golden/calibrate.py`; without one nothing is a near tie.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import frexp, ldexp

from graphcheck.harness.judging.transcript import Transcript
from graphcheck.schema.base import AxisValue
from graphcheck.schema.golden import GoldenPrompt, GoldenStep
from graphcheck.schema.run import NearTie

PRECISION = {"float32": 24, "bfloat16": 8, "float16": 11}
"""Significant bits of a dtype, the implicit one included."""


@dataclass(frozen=True)
class TieRule:
    """The dtype that was computed in, and the calibrated bound in its ULP; None if there is no calibration."""

    dtype: str = "float32"
    bound: float | None = None


def is_bit_exact(dtype: str, settings: Mapping[str, AxisValue]) -> bool:
    """True if an engine's arithmetic leaves rounding nothing to decide, so that any difference is a bug."""
    return dtype == "float32" and settings.get("numerics", "invariant") == "invariant"


def ulp(value: float, dtype: str) -> float:
    """The distance between `value`, rounded towards 0, and the next number of `dtype` away from 0.

    Raises:
        KeyError: not a dtype of PRECISION.
    """
    return ldexp(1.0, frexp(value)[1] - PRECISION[dtype])


def margin_ulp(step: GoldenStep, token: int, dtype: str) -> float | None:
    """How far the golden's choice stands above `token`; None if that is not among its best, or nobody knows the dtype.

    `token` may be the choice itself: its margin is 0.
    """
    logits = dict(step.top)
    if token not in logits or dtype not in PRECISION:
        return None
    best = step.top[0][1]
    return (best - logits[token]) / ulp(best, dtype)


def near_ties(
    golden: GoldenPrompt, answer: Transcript, step: int, forced: Transcript | None, rule: TieRule
) -> tuple[NearTie, ...]:
    """The near ties that explain an answer that first differs at `step`; empty if not all is explained.

    Judged are every step of the forced pass, and the first difference of the free one: up to there it too was fed with
    the golden's tokens. What follows it in the free pass is a consequence.
    """
    if rule.bound is None or forced is None or len(forced.tokens) != len(golden.ids):
        return ()
    if step >= min(len(answer.tokens), len(golden.ids)) or not _all_finite(answer, forced):
        return ()
    picked = {number: token.id for number, token in enumerate(forced.tokens)}
    wrong = {number: token for number, token in picked.items() if token != golden.ids[number]}
    ties = []
    for number, got in sorted(({step: answer.tokens[step].id} | wrong).items()):
        margin = margin_ulp(golden.steps[number], got, rule.dtype)
        if margin is None or margin > rule.bound:
            return ()
        tie = NearTie(run=answer.run, step=number, expected=golden.ids[number], got=got, margin_ulp=margin)
        ties.append(tie)
    return tuple(ties)


def _all_finite(*transcripts: Transcript) -> bool:
    return all(token.finite for transcript in transcripts for token in transcript.tokens)
