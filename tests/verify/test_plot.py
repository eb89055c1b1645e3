"""Curves as text."""

import pytest

from tiltyard.core.verdict import Curve
from tiltyard.verify.dynamic.plot import plot


def curve(name: str, power: int, *, slope: float | None = None) -> Curve:
    points = tuple((float(x), float(x) ** power) for x in (1, 10, 100, 1000))
    return Curve(name=name, x_unit="size", y_unit="CPU s", points=points, slope=slope)


def test_a_power_is_a_straight_line_on_logarithmic_axes() -> None:
    lines = plot((curve("square", 2),), logarithmic=True, width=49, height=13)
    marks = [(line.index("*") - 9, row) for row, line in enumerate(lines[:13]) if "*" in line]
    assert marks == [(39, 0), (26, 4), (13, 8), (0, 12)]


def test_both_curves_and_their_slopes_are_named() -> None:
    lines = plot((curve("solution", 2, slope=2.0), curve("reference", 1)), logarithmic=True)
    text = "\n".join(lines)
    assert "* solution (CPU s), slope 2" in text
    assert "o reference (CPU s)" in text
    assert "." in lines[7]  # the fitted line
    assert max(map(len, lines)) <= 64


def test_points_that_no_axis_has_are_left_out() -> None:
    odd = Curve(
        name="odd",
        x_unit="size",
        y_unit="s",
        points=((0.0, 1.0), (1.0, -1.0), (float("inf"), 1.0), (2.0, float("nan")), (3.0,)),
    )
    assert plot((odd,), logarithmic=True) == ()
    assert plot((), logarithmic=False) == ()


def test_one_point_and_flat_curves() -> None:
    flat = Curve(name="flat", x_unit="calls", y_unit="bytes", points=((1.0, 5.0), (2.0, 5.0)))
    assert any("*" in line for line in plot((flat,), logarithmic=False))


def test_too_small() -> None:
    with pytest.raises(ValueError, match="too small"):
        plot((curve("x", 1),), logarithmic=True, width=10)
