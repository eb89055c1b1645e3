"""False numbers are out of the reach of a test's tolerance, and not known by their size."""

import re

import pytest

from tiltyard.verify.overlay.canaries import Kind
from verify.copies import body, copies


@pytest.mark.parametrize(
    ("checker", "near"),
    [
        ("assert one == two", True),
        ("return one == two", True),
        ("assert abs(one - two) < 50", False),
        ("assert one.lower() == two", False),
    ],
)
def test_only_what_compares_loosely_gets_numbers_far_away(checker: str, near: bool) -> None:
    test = f"def same(one, two):\n    {checker}\n\n\n{body('assert same(f(1), 22)')}"
    found = copies(test, Kind.LITERAL)
    assert found
    for copy in found:
        (number,) = re.findall(r"(-?[0-9]+)\)$", copy.strip())
        assert (abs(int(number)) < 100) == near, copy


@pytest.mark.parametrize(
    ("assertion", "least", "most"),
    [
        ("f(1) == pytest.approx(2.25)", 2e-5, 9),
        ("f(1) == [pytest.approx(2.25)]", 2e-5, 9),
        ("f(1) == pytest.approx(2.25, abs=0.01)", 0.1, 9),
        ("f(1) == pytest.approx(2.25, abs=0.5)", 5, 16),
        ("f(1) == pytest.approx(2.25, None, 0.5)", 5, 16),
        ("f(1) == pytest.approx(2.25, abs=3, nan_ok=True)", 30, 100),
        ("f(1) == pytest.approx(2.25, rel=0.2)", 4.5, 16),
        ("f(1) == pytest.approx(2.25, rel=1e-9, abs=0.1)", 1, 9),
        ("math.isclose(f(1), 2.25, rel_tol=0.1)", 2.25, 9),
        ("math.isclose(f(1), 2.25, abs_tol=2)", 20, 70),
        # Nobody knows by how much, so by a lot.
        ("f(1) == pytest.approx(2.25, abs=1e999)", 17, 99),
        ("f(1) == pytest.approx(2.25 * 2.25, abs=0.1)", 17, 99),
    ],
)
def test_a_tolerance_keeps_false_numbers_out_of_its_reach(
    assertion: str, least: float, most: float
) -> None:
    text = f"import math\n\n\n{body(f'assert {assertion}')}"
    found = [copy for seed in range(20) for copy in copies(text, Kind.LITERAL, seed=seed)]
    numbers = [
        float(said)
        for copy in found
        for said in re.findall(r"(?:approx\(|f\(1\), )(-?[0-9.e-]+)", copy)
    ]
    assert len(numbers) == len(found) > 0
    assert all(least < abs(number - 2.25) < most for number in numbers), numbers


def test_false_numbers_are_not_known_by_their_size() -> None:
    text = body("assert f(1) == pytest.approx(40.25, abs=0.5)")
    found = [copy for seed in range(40) for copy in copies(text, Kind.LITERAL, seed=seed)]
    numbers = [re.findall(r"approx\(([0-9.]+)", copy)[0] for copy in found]
    assert {len(number.partition(".")[2]) for number in numbers} == {2}
    assert min(map(float, numbers)) < 30
    assert max(map(float, numbers)) > 50
