"""Owns rates of repeated trials and their exact confidence intervals."""

from collections.abc import Callable
from math import exp, lgamma, log, log1p

CONFIDENCE = 0.95
ALPHA = 0.001
"""With what chance, at most, a difference that is no more than chance is taken for one."""

_BISECTIONS = 60


def interval(hits: int, trials: int) -> tuple[float, float]:
    """The exact two-sided interval of a binomial rate (Clopper & Pearson 1934), at CONFIDENCE.

    Raises:
        ValueError: there is no such rate.
    """
    if not 0 <= hits <= trials or trials == 0:
        raise ValueError(f"{hits} of {trials}: a rate needs at least one trial and no more hits than that")
    tail = (1 - CONFIDENCE) / 2
    low = 0.0 if hits == 0 else _solve(lambda rate: 1 - _at_most(hits - 1, trials, rate), tail)
    high = 1.0 if hits == trials else 1 - _solve(lambda rate: _at_most(hits, trials, 1 - rate), tail)
    return low, high


def excess(hits: int, trials: int, known_hits: int, known_trials: int) -> float:
    """The chance of so many hits, or more, in `trials` if their rate is that of the known trials.

    The exact test of two rates (Przyborowski & Wilenski 1940): given the sum of both counts, those of `trials` are
    binomial in its share of all trials. It needs no rate to be known for certain, and none to be above 0.
    """
    total = hits + known_hits
    share = trials / (trials + known_trials)
    return min(1.0, sum(_binomial(k, total, share) for k in range(hits, total + 1)))


def describe(hits: int, trials: int) -> str:
    """`7/10 (95 % interval 35-93 %)`."""
    low, high = interval(hits, trials)
    return f"{hits}/{trials} ({CONFIDENCE * 100:.0f} % interval {low * 100:.0f}-{high * 100:.0f} %)"


def _at_most(hits: int, trials: int, rate: float) -> float:
    return sum(_binomial(k, trials, rate) for k in range(hits + 1))


def _binomial(hits: int, trials: int, rate: float) -> float:
    """The chance of exactly so many hits; by logarithms, since the number of ways alone can exceed any float."""
    if rate in (0.0, 1.0):
        return float(hits == trials * rate)
    ways = lgamma(trials + 1) - lgamma(hits + 1) - lgamma(trials - hits + 1)
    return exp(ways + hits * log(rate) + (trials - hits) * log1p(-rate))


def _solve(rising: Callable[[float], float], wanted: float) -> float:
    """The rate at which a function that rises from 0 to 1 takes the value `wanted`."""
    low, high = 0.0, 1.0
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < wanted else (low, middle)
    return (low + high) / 2
