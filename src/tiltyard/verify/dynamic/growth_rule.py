"""From measured CPU times to whether a solution grows like its reference. Pure.

A sample has three runs on one input: of the solution, of its reference, and of a function that does
nothing. What reading the input costs is in all three, and what the third used is taken from the
others; what encoding the result costs is in both sides alike. Only times well above noise are
used, and of those only the tail of large sizes, where lower powers and special cases of small
inputs have died out.

- Where both sides have times for the same inputs, the slope of the logarithm of their *ratio* over
  that of the size is fitted: what the two share, a machine that is slow for a while or a power that
  changes with the size, does not touch it.
- Where they have not, or over so narrow a range that it says less, each side's own slope is fitted,
  and the difference taken: of the two the one that is known better counts.
- A solution that was cut off where its reference was not gives a bound: it grew at least to there.
- A side that never rises above noise up to the largest size is flat. Two flat ones are alike.
- Who takes long for the smallest inputs already hides how time grows: a solution that seems as good
  as its reference must also seem so when what it takes longer there is taken off.

A factor of log n is a power of 0.1 to 0.2 at these sizes, less than any sensible tolerance: it is
not told from none.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import median

from tiltyard.core.verdict import Curve
from tiltyard.verify.dynamic.slopes import POINTS_MAX, Line, theil_sen

POINTS_MIN, SIZES_MIN = 4, 3
"""Of usable times, and of different sizes among them."""
TAIL = 16.0
"""Sizes down to the largest over this count, if there are `TAIL_POINTS`."""
TAIL_POINTS = 6
SPREADS = 5.0
"""Of the floor's spread: less is noise."""
FLOOR_SHARE = 0.25
"""Of the floor itself, which for a large input is reading it, and varies with the machine."""
FLAT = 2.0
"""Times no further above noise than this say nothing: the noise of a busy machine has bursts."""
FLOOR_REACH = 1.25
STEEP = 4.0
"""A function that explodes has a slope that grows with the size, and of which a share is no more
than noise: above this slope of the reference's, the tolerance grows in proportion."""
MOSTLY = 0.8
CLEAR = 3.0
"""Times so far above noise are used alone, if there are enough."""
TIME_TAIL = 40.0
"""Times down to the longest over this, likewise: near noise, only what it made longer is kept."""
RISE_FROM_FLAT = 20.0
"""A compiled loop is so much quicker than one of Python's: a side that is flat may still hide a
power under noise unless the other is this far above it."""
WIDTH_MAX = 3.0
"""In powers: one side's slope that is known no better says nothing; half of it, if that is more."""
WIDE = 2.5
"""An interval that reaches beyond so many times what is allowed, by default nearly a whole power,
says nothing."""
AHEAD = 2.0
"""A reference that got so many times as far was not stopped by what stopped the solution."""
CUT_JUMP = 2.0
"""How much more than the reference it must have grown since the last size that it finished."""
CUT_MARGIN = 1.0
"""A power more than the tolerance for one point that was cut off: it has no neighbours to bear it
out."""


class Side(StrEnum):
    """Which way it went."""

    WITHIN = "within"
    SLOWER = "slower"
    UNRESOLVED = "unresolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Three runs on one input. CPU times in seconds."""

    size: int
    floor_s: float
    reference_s: float | None
    """None when it was not run at this size, or cut off."""
    solution_s: float | None
    cut_s: float | None = None
    """What the solution had used when it was cut off; None when it was not."""
    reference_cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """How a solution grows beside its reference."""

    side: Side
    excess: float | None
    """In powers of the size over the reference's; None when unresolved. At least, when `cut`."""
    low: float | None
    high: float | None
    why: str
    curves: tuple[Curve, ...]
    allowed: float = 0.0
    """How much of it is tolerated."""


def judge(samples: Sequence[Sample], *, spread_s: float, tolerance: float) -> Judged:
    """`spread_s` is the standard deviation of the floor at the smallest size."""
    ordered = _with_steady_floors(sorted(samples, key=lambda each: each.size)[-POINTS_MAX:])
    noise = [noise_of(each, spread_s=spread_s) for each in ordered]
    rows = [
        _Row(
            size=each.size,
            noise_s=least,
            reference_s=_net(each.reference_s, each.floor_s),
            solution_s=_net(each.solution_s, each.floor_s),
            cut_s=_net(each.cut_s, each.floor_s),
            reference_cut=each.reference_cut,
        )
        for each, least in zip(ordered, noise, strict=True)
    ]
    judged = _cut_off(rows, tolerance) or _compare(rows, tolerance)
    if judged.side is Side.WITHIN:
        judged = _without_start(rows, tolerance) or judged
    curves = (
        _curve("solution", [(row.size, row.solution_s) for row in rows], _solutions(rows)),
        _curve("reference", [(row.size, row.reference_s) for row in rows], _references(rows)),
    )
    return replace(judged, curves=curves)


def noise_of(sample: Sample, *, spread_s: float) -> float:
    """Seconds over the floor that may be noise at this size."""
    return SPREADS * spread_s + FLOOR_SHARE * sample.floor_s


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    size: int
    noise_s: float
    reference_s: float | None
    solution_s: float | None
    cut_s: float | None
    reference_cut: bool


Points = list[tuple[float, float]]


def _with_steady_floors(ordered: Sequence[Sample]) -> list[Sample]:
    """Each floor is the median of those at about the same size: one alone may be an outlier."""
    return [
        replace(
            each,
            floor_s=median(
                other.floor_s
                for other in ordered
                if each.size / FLOOR_REACH <= other.size <= each.size * FLOOR_REACH
            ),
        )
        for each in ordered
    ]


def _net(used_s: float | None, floor_s: float) -> float | None:
    return None if used_s is None else max(used_s - floor_s, 0.0)


def _tail(times: Sequence[tuple[int, float | None, float]]) -> Points:
    """The usable times of large sizes, as logarithms.

    All times from some size on are taken, not those that are long enough: among short ones, that
    would keep just what noise made longer.
    """
    finished = [(size, time, noise) for size, time, noise in times if time]
    usable = [each for each in finished if each[1] > each[2]]
    largest = max((size for size, _, _ in usable), default=0)
    longest = max((time for _, time, _ in usable), default=0.0)
    for clear, least in ((CLEAR, longest / TIME_TAIL), (CLEAR, 0.0), (1.0, 0.0)):
        good = [(size, time > max(clear * noise, least)) for size, time, noise in finished]
        first = _mostly_from([each for each in good if each[0] * TAIL >= largest])
        tail = [each for each in finished if first is not None and each[0] >= first]
        if len(tail) >= TAIL_POINTS:
            return [(math.log(size), math.log(time)) for size, time, _ in tail]
    return [(math.log(size), math.log(time)) for size, time, _ in usable]


def _mostly_from(good: Sequence[tuple[int, bool]]) -> int | None:
    """The smallest size that is good and from which on nearly all are; None: there is none."""
    for at, (size, is_good) in enumerate(good):
        rest = [each for _, each in good[at:]]
        if is_good and sum(rest) >= MOSTLY * len(rest):
            return size
    return None


def _line(points: Points) -> Line | None:
    distinct = len({x for x, _ in points})
    return theil_sen(points) if len(points) >= POINTS_MIN and distinct >= SIZES_MIN else None


def _solutions(rows: Sequence[_Row]) -> Line | None:
    return _line(_tail([(row.size, row.solution_s, row.noise_s) for row in rows]))


def _references(rows: Sequence[_Row]) -> Line | None:
    return _line(_tail([(row.size, row.reference_s, row.noise_s) for row in rows]))


def _compare(rows: Sequence[_Row], tolerance: float) -> Judged:
    pairs = _ratios(rows)
    counts = (
        sum(row.solution_s is not None for row in rows),
        sum(row.reference_s is not None for row in rows),
    )
    if min(counts) < POINTS_MIN:
        return _unresolved(f"only {min(counts)} sizes were finished")
    one, other = _solutions(rows), _references(rows)
    flat = _with_a_flat_side(rows, one, other, tolerance)
    if flat is not None:
        return flat
    together = _line(pairs)
    steep = other is not None and other.slope > STEEP
    allowed = tolerance * (max(other.slope / STEEP, 1.0) if other is not None else 1.0)
    apart = None
    if one is not None and other is not None and not (_is_vague(one) or _is_vague(other)):
        apart = _between(one, other)
    if together is not None and (steep or apart is None or _width(together) <= _width(apart)):
        return _decide(together, allowed, "the same inputs")
    if apart is not None:
        return _decide(apart, allowed, "inputs of different sizes")
    return _unresolved("too few sizes give times clearly above noise on both sides")


def _without_start(rows: Sequence[_Row], tolerance: float) -> Judged | None:
    """What is found when the solution's start is taken off its times; None for nothing worse.

    As much as varies of a start is noise then.
    """
    own = [row for row in rows if row.solution_s is not None]
    smallest = [row for row in own if row.reference_s is not None][:POINTS_MIN]
    if len(smallest) < POINTS_MIN:
        return None
    start_s = median((row.solution_s or 0.0) - (row.reference_s or 0.0) for row in smallest)
    if start_s <= CLEAR * max(row.noise_s for row in smallest):
        return None
    rest = [
        replace(
            row,
            solution_s=_net(row.solution_s, start_s),
            cut_s=_net(row.cut_s, start_s),
            noise_s=row.noise_s + FLOOR_SHARE * start_s,
        )
        for row in rows
    ]
    judged = _cut_off(rest, tolerance) or _compare(rest, tolerance)
    if judged.side is Side.SLOWER:
        return judged
    ahead = max(row.size for row in rows if row.reference_s is not None) > AHEAD * own[-1].size
    if ahead and (judged.side is Side.UNRESOLVED or _rise_of_solution(rest) <= FLAT):
        return _unresolved(
            f"for the smallest inputs already it takes {start_s:.2g} s longer than its reference, "
            "beside which its growth cannot be seen"
        )
    return None


def _width(line: Line) -> float:
    return line.high - line.low


def _is_vague(line: Line) -> bool:
    return _width(line) > max(WIDTH_MAX, abs(line.slope) / 2)


def _between(one: Line, other: Line) -> Line:
    """The difference of two slopes that were found apart, with their errors taken together."""
    slope = one.slope - other.slope
    return Line(
        slope=slope,
        low=slope - math.hypot(one.slope - one.low, other.high - other.slope),
        high=slope + math.hypot(one.high - one.slope, other.slope - other.low),
        intercept=one.intercept - other.intercept,
    )


def _ratios(rows: Sequence[_Row]) -> Points:
    """The ratios of usable times of large sizes, as logarithms: of those that both sides have."""
    lesser = [
        (row.size, min(row.solution_s, row.reference_s), row.noise_s)
        if row.solution_s is not None and row.reference_s is not None
        else (row.size, None, row.noise_s)
        for row in rows
    ]
    kept = {size for size, _ in _tail(lesser)}
    return [
        (math.log(row.size), math.log(row.solution_s / row.reference_s))
        for row in rows
        if row.solution_s and row.reference_s and math.log(row.size) in kept
    ]


def _with_a_flat_side(
    rows: Sequence[_Row], solution: Line | None, reference: Line | None, tolerance: float
) -> Judged | None:
    """None when neither side is flat."""
    solution_rise = _rise_of_solution(rows)
    reference_rise = _rise([(row.reference_s, row.noise_s) for row in rows])
    if solution_rise <= FLAT and all(row.cut_s is None for row in rows):
        slope = reference.slope if reference is not None and reference_rise > FLAT else 0.0
        return _judged(Side.WITHIN, -slope, None, "it never rises above noise")
    if min(reference_rise, solution_rise) > FLAT or any(row.reference_cut for row in rows):
        return None
    if solution is not None and solution_rise >= RISE_FROM_FLAT:
        return _decide(
            solution, tolerance, "the solution's own sizes: its reference never rises above noise"
        )
    return _unresolved("the reference never rises above noise, and the solution does not by much")


def _rise_of_solution(rows: Sequence[_Row]) -> float:
    return _rise([(row.solution_s, row.noise_s) for row in rows])


def _rise(times: Sequence[tuple[float | None, float]]) -> float:
    """How far the higher times are above noise: so far are as many as a line needs."""
    rises = sorted((time / noise for time, noise in times if time is not None), reverse=True)
    return rises[POINTS_MIN - 1] if len(rises) >= POINTS_MIN else 0.0


def _decide(line: Line, allowed: float, why: str) -> Judged:
    if line.slope <= allowed and line.high <= allowed * WIDE:
        side = Side.WITHIN
    elif line.slope > allowed and line.low > 0:
        side = Side.SLOWER
    else:
        return _unresolved(
            f"too much noise: {line.slope:.2f} in [{line.low:.2f}, {line.high:.2f}], over {why}"
        )
    return Judged(
        side=side,
        excess=line.slope,
        low=line.low,
        high=line.high,
        allowed=allowed,
        why=f"fitted over {why}",
        curves=(),
    )


def _cut_off(rows: Sequence[_Row], tolerance: float) -> Judged | None:
    """A solution that was cut off at a size that its reference finished, when that says enough."""
    best: float | None = None
    at = 0
    for row in rows:
        if row.cut_s is None or row.reference_s is None:
            continue
        before = [
            each
            for each in rows
            if each.size < row.size and each.solution_s is not None and each.reference_s is not None
        ]
        if not before:
            continue
        last = before[-1]
        theirs = max(row.reference_s, row.noise_s) / max(last.reference_s or 0.0, last.noise_s)
        ours = row.cut_s / max(last.solution_s or 0.0, last.noise_s)
        if ours < CUT_JUMP * theirs:
            continue  # as much may be noise
        excess = math.log(ours / theirs) / math.log(row.size / last.size)
        if best is None or excess > best:
            best, at = excess, row.size
    if best is None or best <= tolerance + CUT_MARGIN:
        return None
    return _judged(
        Side.SLOWER, best, best, f"cut off at size {at}, where the reference had finished"
    )


def _judged(side: Side, excess: float, low: float | None, why: str) -> Judged:
    return Judged(side=side, excess=excess, low=low, high=None, why=why, curves=())


def _unresolved(why: str) -> Judged:
    return Judged(side=Side.UNRESOLVED, excess=None, low=None, high=None, why=why, curves=())


def _curve(name: str, times: Sequence[tuple[int, float | None]], line: Line | None) -> Curve:
    return Curve(
        name=name,
        x_unit="size",
        y_unit="CPU s",
        points=tuple((float(size), time) for size, time in times if time is not None),
        slope=None if line is None else line.slope,
        slope_low=None if line is None else line.low,
        slope_high=None if line is None else line.high,
    )
