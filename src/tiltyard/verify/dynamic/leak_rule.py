"""From readings of a process over many calls to whether it leaks. Pure.

A leak is growth that does not end: the slope over the calls is above the limit with its whole
confidence interval, *and* the last third went on growing at half that pace. So a cache that fills
up, or a warm-up that goes on for long, is none. Medians of windows are fitted, not single
readings: memory comes and goes by pages and by the allocator's pools.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

from tiltyard.core.verdict import Curve
from tiltyard.verify.dynamic.slopes import Line, theil_sen

WINDOWS_MAX = 60
WINDOWS_MIN = 6
STEADY = 0.8
GOES_ON = 0.5
"""Of what the slope would give in the last third, so much at least must have been added there."""


class Series(StrEnum):
    """What is watched."""

    PRIVATE = "private memory"
    HELD = "memory held in all"
    DESCRIPTORS = "descriptors"
    THREADS = "threads"
    PROCESSES = "processes"


COUNT_LIMIT = 0.004
"""Of descriptors, threads and processes for each call: one for 250."""
HELD_BYTES_MIN = 2048.0
"""The cgroup's own count has files and the kernel's part in it, and moves in large steps."""
GROWN_BYTES_MIN = 32_768.0
"""Less than this in all is a few pages, which any process grows by in its first hundred calls."""
_MEMORY = (Series.PRIVATE, Series.HELD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """After so many calls, so much of each series; of one that is not counted here, nothing."""

    calls: int
    values: dict[Series, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """How one series went. `limit` and the line's slope are for each call."""

    series: Series
    line: Line
    limit: float
    leaks: bool
    suspect: bool
    """Only one of the two conditions holds: more calls would tell."""
    certain: bool
    """It leaks, and has not slowed down: more calls would tell the same."""
    points: tuple[tuple[float, float], ...]

    @property
    def unit(self) -> str:
        return "bytes" if self.series in _MEMORY else "count"

    def curve(self) -> Curve:
        return Curve(
            name=self.series.value,
            x_unit="calls",
            y_unit=self.unit,
            points=self.points,
            slope=self.line.slope,
            slope_low=self.line.low,
            slope_high=self.line.high,
        )


def trends(readings: Sequence[Reading], *, bytes_per_call_max: float) -> tuple[Trend, ...]:
    """One for each series that was counted; none of fewer than `WINDOWS_MIN` readings."""
    limits = {
        Series.PRIVATE: bytes_per_call_max,
        Series.HELD: max(bytes_per_call_max, HELD_BYTES_MIN),
    }
    found: list[Trend] = []
    for series in Series:
        points = [
            (float(each.calls), each.values[series]) for each in readings if series in each.values
        ]
        trend = _trend(series, _windows(points), limits.get(series, COUNT_LIMIT))
        if trend is not None:
            found.append(trend)
    return tuple(found)


def _windows(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Medians of windows with equally many readings."""
    count = min(len(points), WINDOWS_MAX)
    edges = [round(at * len(points) / count) for at in range(count + 1)] if count else []
    return tuple(
        (median(x for x, _ in points[low:high]), median(y for _, y in points[low:high]))
        for low, high in pairwise(edges)
    )


def _trend(series: Series, points: tuple[tuple[float, float], ...], limit: float) -> Trend | None:
    line = theil_sen(points) if len(points) >= WINDOWS_MIN else None
    if line is None:
        return None
    third = len(points) // 3
    last = points[-third:]
    half = max(len(last) // 2, 1)
    added = median(y for _, y in last[-half:]) - median(y for _, y in last[:half])
    calls = median(x for x, _ in last[-half:]) - median(x for x, _ in last[:half])
    above = line.low > limit
    goes_on = added > 0 and added >= GOES_ON * max(limit, line.low) * calls
    grown = line.slope * (points[-1][0] - points[0][0])
    leaks = above and goes_on and not (series in _MEMORY and grown < GROWN_BYTES_MIN)
    return Trend(
        series=series,
        line=line,
        limit=limit,
        leaks=leaks,
        suspect=above or goes_on,
        certain=leaks and added >= STEADY * line.slope * calls,
        points=points,
    )
