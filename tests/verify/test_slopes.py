"""Theil and Sen's line: against figures of scipy.stats.theilslopes 1.17, and its properties."""

import math
import random

import pytest
from hypothesis import given, strategies as st

from tiltyard.verify.dynamic.slopes import POINTS_MAX, theil_sen

YS = (2.1, 3.9, 6.2, 7.8, 30.0, 12.1, 13.8, 16.2, 18.1, 19.9)
POINTS = tuple((float(x), y) for x, y in enumerate(YS, start=1))
TIED = ((1, 0), (1, 1), (2, 3), (3, 3), (3, 5), (4, 4), (5, 9), (5, 9))
finite = st.floats(-1e6, 1e6)


def test_one_point_far_off_moves_it_little() -> None:
    line = theil_sen(POINTS)
    assert line is not None
    assert 1.9 < line.slope < 2.1
    assert line.low < 2.0 < line.high


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        (POINTS, (2.0, 1.95, 1.9, 2.05)),
        (((1, 5), (2, 3), (3, 8), (4, 1)), (-7 / 6, 83 / 12, -7.0, 5.0)),
        (TIED, (2.0, -2.5, 1.0, 3.0)),
    ],
)
def test_as_scipy_has_it(
    points: tuple[tuple[float, float], ...], expected: tuple[float, float, float, float]
) -> None:
    line = theil_sen(points)
    assert line is not None
    got = (line.slope, line.intercept, line.low, line.high)
    assert got == pytest.approx(expected, abs=1e-9)


@given(slope=st.floats(-100, 100), intercept=finite, count=st.integers(4, 30))
def test_an_exact_line_is_found(slope: float, intercept: float, count: int) -> None:
    line = theil_sen([(float(x), intercept + slope * x) for x in range(count)])
    assert line is not None
    for found in (line.slope, line.low, line.high):
        assert math.isclose(found, slope, rel_tol=1e-6, abs_tol=1e-6)


@pytest.mark.slow
def test_the_interval_holds_the_slope_as_often_as_it_says() -> None:
    rng = random.Random(5)  # noqa: S311
    held = 0
    for _ in range(400):
        line = theil_sen([(x, 0.7 * x + rng.gauss(0, 1)) for x in range(16)])
        assert line is not None
        held += line.low <= 0.7 <= line.high
    assert 0.90 < held / 400 < 0.995


def test_what_has_no_slope() -> None:
    assert theil_sen([]) is None
    assert theil_sen([(1.0, 1.0), (1.0, 2.0)]) is None
    with pytest.raises(ValueError, match="points"):
        theil_sen([(float(x), 0.0) for x in range(POINTS_MAX + 1)])
