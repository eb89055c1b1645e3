"""The climb itself, on times that a formula gives: whatever kind of thing it measures."""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tiltyard.core.checks import Growth
from tiltyard.core.verdict import Component, Gap
from tiltyard.verify.dynamic.growth import GrowthMeter, Took, cut_s

LIMITS = Growth(size_max=1_000_000, seconds_max=3.0)
Seconds = Callable[[int], float]


@dataclass
class Formulas:
    """A contest of two formulas, with a little noise."""

    reference: Seconds
    solution: Seconds
    veil: str = ""
    wrong_from: int = 1 << 40
    dead_from: int = 1 << 40
    """Both sides give no answer, such as for want of memory."""
    crosses_to: int = 1 << 40
    noise: random.Random = field(default_factory=lambda: random.Random(1))  # noqa: S311
    sizes: list[int] = field(default_factory=list)

    async def turn(self, size: int) -> "Input | None":
        self.sizes.append(size)
        return Input(self, size) if size <= self.crosses_to else None


@dataclass
class Input:
    of: Formulas
    size: int

    async def floor_s(self) -> float:
        return self.of.noise.uniform(-1e-4, 1e-4)

    async def call(self, side: str) -> Took:
        formula = self.of.solution if side == "solution" else self.of.reference
        took_s = formula(self.size) * self.of.noise.uniform(0.9, 1.1) + await self.floor_s()
        over = took_s > cut_s(LIMITS)
        finished = not over and self.size < self.of.dead_from
        return Took(cpu_s=min(took_s, cut_s(LIMITS)), finished=finished, over=over)

    async def wrong(self) -> str:
        if self.size >= self.of.dead_from:
            return "ended: oom"
        return "7" if self.size >= self.of.wrong_from else ""


def measured(contest: Formulas) -> Component:
    return asyncio.run(GrowthMeter(contest, LIMITS, seed=1).measure())


def linear(size: int) -> float:
    return size * 1e-6


def quadratic(size: int) -> float:
    return size * size * 1e-8


@pytest.mark.parametrize(
    ("reference", "solution", "worth"),
    [
        (linear, linear, 1.0),
        (quadratic, quadratic, 1.0),
        (quadratic, linear, 1.0),
        (linear, lambda size: 5 * linear(size), 1.0),
        (linear, quadratic, None),
    ],
)
def test_which_side(reference: Seconds, solution: Seconds, worth: float | None) -> None:
    got = measured(Formulas(reference, solution))
    assert got.normalised is not None, got.evidence
    assert got.normalised == worth or (worth is None and got.normalised < 0.6)


def test_a_wrong_answer_ends_it() -> None:
    contest = Formulas(linear, linear, wrong_from=1000)
    got = measured(contest)
    assert (got.raw, got.gap) == (None, Gap.NOT_POSSIBLE)
    assert got.evidence[0].message == f"not the reference's answer at size {contest.sizes[-1]}: 7"


def test_what_does_not_cross_ends_the_climb() -> None:
    contest = Formulas(linear, linear, crosses_to=80_000)
    assert measured(contest).normalised == 1.0
    assert max(contest.sizes) > 80_000
    assert sum(size > 80_000 for size in contest.sizes) == 1


def test_an_input_that_the_reference_dies_of_is_held_against_nobody() -> None:
    assert measured(Formulas(linear, linear, dead_from=80_000)).normalised == 1.0


def test_behind_a_veil_nothing_is_as_good_but_something_may_be_slower() -> None:
    got = measured(Formulas(linear, linear, veil="its start is long"))
    assert (got.normalised, got.gap) == (None, Gap.UNRESOLVED)
    assert "its start is long" in got.evidence[0].message
    slower = measured(Formulas(linear, quadratic, veil="its start is long"))
    assert slower.normalised is not None
    assert slower.normalised < 0.6
