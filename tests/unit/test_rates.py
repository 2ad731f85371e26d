"""Exact binomial intervals against published and closed-form values."""

import pytest

from graphcheck.harness.judging.rates import describe, excess, interval


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [
        (7, 10, 0.34755, 0.93326),
        (1, 20, 0.00127, 0.24873),
        (50, 100, 0.39832, 0.60168),
        (0, 10, 0.0, 1 - 0.025 ** (1 / 10)),
        (10, 10, 0.025 ** (1 / 10), 1.0),
        (0, 1, 0.0, 0.975),
    ],
)
def test_interval_is_clopper_pearsons(hits: int, trials: int, low: float, high: float) -> None:
    assert interval(hits, trials) == pytest.approx((low, high), abs=1e-4)


def test_rate_reads_as_hits_of_trials_with_its_interval() -> None:
    assert describe(7, 10) == "7/10 (95 % interval 35-93 %)"


@pytest.mark.parametrize(("hits", "trials"), [(1, 0), (3, 2), (-1, 4)])
def test_rate_that_cannot_be_is_refused(hits: int, trials: int) -> None:
    with pytest.raises(ValueError, match="at least one trial"):
        interval(hits, trials)


def test_many_known_hits_do_not_exceed_a_float() -> None:
    assert excess(0, 185, 1100, 22700) == pytest.approx(1.0)
    assert excess(40, 185, 1100, 22700) < 1e-9
    assert excess(3, 10, 3, 10) == pytest.approx(42 / 64)
    assert interval(2000, 4000) == pytest.approx((0.4844, 0.5156), abs=1e-4)
