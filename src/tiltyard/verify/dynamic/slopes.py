"""A line through noisy points: Theil and Sen's slope with its confidence interval. Pure.

The slope is the median of all pairs' slopes (Theil 1950); its 95% interval takes the order
statistics that Kendall's variance of the pairs' signs gives (Sen 1968, corrected for ties). A third
of the points may be wrong by any amount without moving it far.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

POINTS_MAX = 400
"""Of these all pairs are taken: some 80,000."""
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """y = intercept + slope * x, in the units of what was fitted."""

    slope: float
    low: float
    high: float
    """The 95% confidence interval of `slope`."""
    intercept: float


def theil_sen(points: Sequence[tuple[float, float]]) -> Line | None:
    """None where no two points differ in x. Raises `ValueError` over `POINTS_MAX` points."""
    if len(points) > POINTS_MAX:
        raise ValueError(f"a line through {len(points)} points, more than {POINTS_MAX}")
    slopes = sorted(
        (right[1] - left[1]) / (right[0] - left[0])
        for at, left in enumerate(points)
        for right in points[at + 1 :]
        if right[0] != left[0]
    )
    if not slopes:
        return None
    count = len(slopes)
    spread = _Z * math.sqrt(max(_variance(points), 0.0))
    low_at = max(round((count - spread) / 2) - 1, 0)
    high_at = min(round((count + spread) / 2), count - 1)
    slope = median(slopes)
    return Line(
        slope=slope,
        low=slopes[low_at],
        high=slopes[high_at],
        intercept=median(y for _, y in points) - slope * median(x for x, _ in points),
    )


def _variance(points: Sequence[tuple[float, float]]) -> float:
    """Of the number of concordant less discordant pairs, when there is no trend."""

    def term(count: int) -> float:
        return count * (count - 1) * (2 * count + 5)

    tied = (
        term(repeats)
        for axis in (0, 1)
        for repeats in Counter(point[axis] for point in points).values()
    )
    return (term(len(points)) - sum(tied)) / 18
