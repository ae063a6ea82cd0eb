"""Durations, counted by upper bounds: what Prometheus calls a histogram."""

from bisect import bisect_left

from shim.frozen import frozen

# Of ends, clean-ups and waits for the event loop: from a fraction of a millisecond to minutes.
SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@frozen
class Durations:
    """What a histogram has at one moment. `counts`: by bound, and one more for what exceeds them all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total_seconds: float


class Histogram:
    """Observed by one thread, read by any."""

    def __init__(self, bounds: tuple[float, ...] = SECONDS) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total_seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count a duration. A negative one, as of a clock that was set back, counts as none at all."""
        seconds = max(seconds, 0.0)
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total_seconds += seconds

    def now(self) -> Durations:
        return Durations(self._bounds, tuple(self._counts), self._total_seconds)
