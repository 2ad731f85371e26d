"""Owns how many near ties a cell may have: no more than the calibrated rate makes likely, or a drift hides in them."""

from graphcheck.harness.judging.rates import ALPHA, excess
from graphcheck.schema.golden import Calibration


def over_budget(num_near_ties: int, num_steps: int, calibration: Calibration) -> str | None:
    """Why a cell's near ties are too many, or None."""
    chance = excess(num_near_ties, num_steps, calibration.num_near_ties, calibration.num_steps)
    if chance >= ALPHA:
        return None
    rate = 1000 * num_near_ties / num_steps
    known = 1000 * calibration.num_near_ties / calibration.num_steps
    return (
        f"{num_near_ties} near tie{'s' * (num_near_ties > 1)} in {num_steps} steps, {rate:.3g} per 1,000 "
        f"where {known:.3g} were calibrated: "
        f"p = {chance:.1g}, below {ALPHA:g}"
    )
