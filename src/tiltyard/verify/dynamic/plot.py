"""Curves as text, for a terminal: points and fitted lines on logarithmic or plain axes. Pure."""

import math
from collections.abc import Sequence

from tiltyard.core.verdict import Curve

WIDTH_MIN, HEIGHT_MIN = 24, 6
_MARKS = "*o+x#@"
_LINE = "."
_MARGIN = 9


def plot(
    curves: Sequence[Curve], *, logarithmic: bool, width: int = 64, height: int = 16
) -> tuple[str, ...]:
    """Lines of at most `width` characters, with one mark for each curve and dots for its fit.

    On logarithmic axes, points that are not above 0 are left out; a fitted slope is drawn through
    its curve's middle. Curves of different units share the axes all the same: give those that
    belong together. Empty for curves without points. Raises `ValueError` below 24 by 6 characters.
    """
    if width < WIDTH_MIN or height < HEIGHT_MIN:
        raise ValueError(f"a plot of {width} by {height} characters is too small to read")
    drawn = [
        (curve, points)
        for curve in curves[: len(_MARKS)]
        if (points := _points(curve, logarithmic=logarithmic))
    ]
    if not drawn:
        return ()
    xs = [x for _, points in drawn for x, _ in points]
    ys = [y for _, points in drawn for _, y in points]
    area = _Area(xs=(min(xs), max(xs)), ys=(min(ys), max(ys)), columns=width - _MARGIN, rows=height)
    for curve, points in drawn:
        area.line(curve, points)
    for mark, (_, points) in zip(_MARKS, drawn, strict=False):
        area.marks(mark, points)
    unit = drawn[0][0]
    return (
        *area.rows_with_labels(logarithmic=logarithmic),
        area.x_axis(unit.x_unit, logarithmic=logarithmic),
        *(_legend(mark, curve)[:width] for mark, (curve, _) in zip(_MARKS, drawn, strict=False)),
    )


Points = list[tuple[float, float]]


def _points(curve: Curve, *, logarithmic: bool) -> Points:
    pairs = [(point[0], point[1]) for point in curve.points if len(point) > 1]
    if not logarithmic:
        return [pair for pair in pairs if all(map(math.isfinite, pair))]
    return [
        (math.log10(x), math.log10(y)) for x, y in pairs if 0 < x < math.inf and 0 < y < math.inf
    ]


class _Area:
    """The characters between the axes."""

    def __init__(
        self, *, xs: tuple[float, float], ys: tuple[float, float], columns: int, rows: int
    ) -> None:
        self._xs, self._ys = xs, ys
        self._cells = [[" "] * columns for _ in range(rows)]

    def marks(self, mark: str, points: Points) -> None:
        for x, y in points:
            self._put(mark, x, y)

    def line(self, curve: Curve, points: Points) -> None:
        if curve.slope is None:
            return
        # Through the middle of the half that the fit is about.
        tail = sorted(points)[len(points) // 2 :]
        middle = tail[len(tail) // 2]
        low, high = self._xs
        columns = len(self._cells[0])
        for column in range(columns):
            x = low + (high - low) * column / max(columns - 1, 1)
            y = middle[1] + curve.slope * (x - middle[0])
            if self._ys[0] <= y <= self._ys[1]:
                self._put(_LINE, x, y)

    def _put(self, mark: str, x: float, y: float) -> None:
        rows, columns = len(self._cells), len(self._cells[0])
        column = round(_share(x, self._xs) * (columns - 1))
        row = rows - 1 - round(_share(y, self._ys) * (rows - 1))
        self._cells[row][column] = mark

    def rows_with_labels(self, *, logarithmic: bool) -> tuple[str, ...]:
        last = len(self._cells) - 1
        labels = {0: self._ys[1], last: self._ys[0]}
        return tuple(
            f"{_figure(labels[at], logarithmic=logarithmic) if at in labels else '':>7} |"
            + "".join(cells).rstrip()
            for at, cells in enumerate(self._cells)
        )

    def x_axis(self, unit: str, *, logarithmic: bool) -> str:
        left, right = (_figure(x, logarithmic=logarithmic) for x in self._xs)
        room = len(self._cells[0]) - len(left) - len(right)
        return f"{'':>7} +{left}{unit.center(room, '-')[:room]}{right}"


def _share(value: float, between: tuple[float, float]) -> float:
    low, high = between
    return (value - low) / (high - low) if high > low else 0.5


def _figure(value: float, *, logarithmic: bool) -> str:
    return f"{10**value if logarithmic else value:.2g}"


def _legend(mark: str, curve: Curve) -> str:
    text = f"{mark} {curve.name} ({curve.y_unit})"
    if curve.slope is None:
        return text
    text += f", slope {curve.slope:.3g}"
    if curve.slope_low is None or curve.slope_high is None:
        return text
    return f"{text} in [{curve.slope_low:.3g}, {curve.slope_high:.3g}]"
