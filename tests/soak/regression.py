"""Whether a figure grows with the lives: ordinary least squares, the slope's 95 % confidence interval, a verdict. Pure.

The interval takes the samples' errors as independent. Those of memory are not quite (a heap that has grown stays so for
a while), so that the true interval is somewhat wider.
"""

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum

from shim.frozen import frozen

LEAST = 7  # samples: below, Student's quantile is not approximated well by `quantile`
P = 0.975  # both sides of 95 %


class Verdict(StrEnum):
    FLAT = "flat"
    GROWS = "grows"
    SHRINKS = "shrinks"


class TooFew(ValueError):
    """No line can be drawn through so few samples."""


@frozen
class Line:
    """A figure over lives: `slope` per life, and the interval that has the true one with 95 % confidence."""

    slope: float
    low: float
    high: float

    def verdict(self, bound: float) -> Verdict:
        """Return FLAT when the interval contains 0, or the slope is nearer to 0 than `bound` (per life)."""
        if self.low <= 0 <= self.high or abs(self.slope) < bound:
            return Verdict.FLAT
        return Verdict.GROWS if self.slope > 0 else Verdict.SHRINKS


def fit(xs: Sequence[float], ys: Sequence[float]) -> Line:
    """Return the line through the samples. Raises TooFew for fewer than LEAST, or when all xs are one."""
    count = len(xs)
    if count < LEAST or len(set(xs)) == 1:
        raise TooFew(f"{count} samples of {len(set(xs))} places: {LEAST} are needed, at two places or more")
    slope, intercept = statistics.linear_regression(xs, ys)
    mean = statistics.fmean(xs)
    spread = math.fsum((x - mean) ** 2 for x in xs)
    left = math.fsum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    half = quantile(count - 2) * math.sqrt(left / (count - 2) / spread)
    return Line(slope, slope - half, slope + half)


def quantile(freedom: int) -> float:
    """Return Student's t for P, by the expansion of Cornish and Fisher around the normal one: 1.96 for many degrees of
    freedom, within 0.2 % from 5 on (Abramowitz and Stegun, 26.7.5)."""
    z = statistics.NormalDist().inv_cdf(P)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return math.fsum(term / freedom**power for power, term in enumerate(terms))
