"""The soak's arithmetic: a slope with its interval, and what is said of it."""

import math
import random

import pytest

from tests.soak.regression import LEAST, Line, TooFew, Verdict, fit, quantile

# Student's t for 97.5 %, from printed tables.
TABLE = {5: 2.571, 6: 2.447, 8: 2.306, 10: 2.228, 20: 2.086, 30: 2.042, 48: 2.011, 120: 1.980, 10_000: 1.960}


@pytest.mark.parametrize(("freedom", "t"), TABLE.items())
def test_the_quantile_is_that_of_the_tables(freedom: int, t: float) -> None:
    assert quantile(freedom) == pytest.approx(t, rel=0.002)


def test_the_slope_and_its_error_are_those_of_a_worked_example() -> None:
    """Heights and weights of fifteen women: slope 61.272, standard error 1.776, t(13) 2.160 (a textbook's)."""
    heights = [1.47, 1.50, 1.52, 1.55, 1.57, 1.60, 1.63, 1.65, 1.68, 1.70, 1.73, 1.75, 1.78, 1.80, 1.83]
    weights = [52.21, 53.12, 54.48, 55.84, 57.20, 58.57, 59.93, 61.29, 63.11, 64.47, 66.28, 68.10, 69.92, 72.19, 74.46]
    line = fit(heights, weights)
    assert line.slope == pytest.approx(61.272, abs=0.001)
    assert line.low == pytest.approx(57.4, abs=0.1) and line.high == pytest.approx(65.1, abs=0.1)


def test_what_does_not_change_is_flat_and_has_no_width() -> None:
    assert fit(range(10), [7.0] * 10) == Line(0, 0, 0)
    assert fit(range(10), [7.0] * 10).verdict(bound=0) is Verdict.FLAT


def test_a_leak_under_noise_is_found_and_named_by_its_direction() -> None:
    pick = random.Random(1)
    noise = [pick.gauss(0, 30) for _ in range(60)]
    lives = [50.0 * n for n in range(60)]
    assert fit(lives, [0.1 * x + e for x, e in zip(lives, noise, strict=True)]).verdict(0.01) is Verdict.GROWS
    assert fit(lives, [-0.1 * x + e for x, e in zip(lives, noise, strict=True)]).verdict(0.01) is Verdict.SHRINKS


def test_a_slope_below_the_bound_is_flat_however_sure_it_is() -> None:
    line = fit(range(50), [0.001 * x for x in range(50)])
    assert line.low > 0
    assert line.verdict(bound=0.01) is Verdict.FLAT and line.verdict(bound=0.0001) is Verdict.GROWS


def test_the_interval_has_the_true_slope_nineteen_times_of_twenty() -> None:
    pick, xs = random.Random(7), [float(x) for x in range(12)]
    lines = [fit(xs, [3 * x + pick.gauss(0, 5) for x in xs]) for _ in range(2000)]
    share = sum(line.low <= 3 <= line.high for line in lines) / len(lines)
    assert math.isclose(share, 0.95, abs_tol=0.015), share


@pytest.mark.parametrize("xs", [[1.0] * 20, [float(x) for x in range(LEAST - 1)]])
def test_too_few_samples_make_no_line(xs: list[float]) -> None:
    with pytest.raises(TooFew):
        fit(xs, [0.0] * len(xs))
