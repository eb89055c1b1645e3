"""From CPU times to a side, without a sandbox: made times with noise, beside what they are."""

import math
import random
from collections.abc import Callable

import pytest

from tiltyard.verify.dynamic.growth_rule import Judged, Sample, Side, judge

FLOOR_S = 0.0008
SPREAD_S = 0.000_15
Cost = Callable[[int], float]

COSTS: dict[str, Cost] = {
    "constant": lambda _: 2e-6,
    "log": lambda n: 2e-7 * math.log(n),
    "linear": lambda n: 4e-8 * n,
    "n_log_n": lambda n: 2e-8 * n * math.log2(n),
    "quadratic": lambda n: 4e-8 * n**2,
    "cubic": lambda n: 2e-8 * n**3,
    "exponential": lambda n: 6e-8 * 2.0 ** min(n, 900),
}
ORDER = tuple(COSTS)
CUT_S, STOP_S = 0.25, 0.1


def measured(solution: Cost, reference: Cost, *, seed: int, size_max: int = 5_000_000) -> Judged:
    """As `growth` measures: a climb, then sizes near each top."""
    rng = random.Random(seed)  # noqa: S311
    sizes, size = [], 8
    while size < size_max:
        sizes.append(size)
        size = int(size * rng.uniform(1.3, 2))
    for cost in (solution, reference):
        top = max((each for each in sizes if cost(each) < STOP_S), default=8)
        top = max(each for each in range(top, 2 * top, max(top // 20, 1)) if cost(each) < CUT_S)
        low = max(top / 8, max((each for each in sizes if cost(each) < 0.003), default=0))
        sizes += [round(low * (top / low) ** math.sqrt(rng.random())) for _ in range(10)]
    samples = [sample(each, solution(each), reference(each), rng) for each in sizes]
    return judge(samples, spread_s=SPREAD_S, tolerance=0.35)


def sample(size: int, solution_s: float, reference_s: float, rng: random.Random) -> Sample:
    def noisy(used_s: float) -> float:
        return used_s * rng.uniform(0.93, 1.1) + FLOOR_S + abs(rng.gauss(0, SPREAD_S))

    return Sample(
        size=size,
        floor_s=noisy(0.0),
        reference_s=noisy(reference_s) if reference_s < CUT_S else None,
        solution_s=noisy(solution_s) if solution_s < CUT_S else None,
        cut_s=CUT_S if solution_s >= CUT_S else None,
        reference_cut=reference_s >= CUT_S,
    )


@pytest.mark.parametrize("solution", ORDER)
@pytest.mark.parametrize("reference", ORDER)
def test_each_class_beside_each(solution: str, reference: str) -> None:
    """A factor of log n alone is not told from none."""
    apart = ORDER.index(solution) - ORDER.index(reference)
    alike = apart <= 0 or {solution, reference} in ({"constant", "log"}, {"linear", "n_log_n"})
    sides = [measured(COSTS[solution], COSTS[reference], seed=seed).side for seed in range(5)]
    assert sides.count(Side.WITHIN if alike else Side.SLOWER) == 5, sides


@pytest.mark.parametrize("factor", [0.1, 0.3, 3.0, 10.0])
@pytest.mark.parametrize("name", ["linear", "n_log_n", "quadratic", "cubic", "exponential"])
def test_a_constant_factor_is_no_other_class(name: str, factor: float) -> None:
    judged = measured(lambda n: factor * COSTS[name](n), COSTS[name], seed=3)
    assert judged.side is Side.WITHIN, judged


def test_special_cases_of_small_inputs_do_not_help() -> None:
    def special(n: int) -> float:
        return COSTS["linear" if n < 400 else "quadratic"](n)

    assert measured(special, COSTS["linear"], seed=1).side is Side.SLOWER


def test_a_cliff_at_large_sizes() -> None:
    def cliff(n: int) -> float:
        return COSTS["linear"](n) if n < 100_000 else 10.0

    judged = measured(cliff, COSTS["linear"], seed=1)
    assert judged.side is Side.SLOWER
    assert "cut off" in judged.why


def test_three_points_say_nothing() -> None:
    rng = random.Random(1)  # noqa: S311
    samples = [sample(n, n * 1e-5, n * 1e-5, rng) for n in (1000, 2000, 4000)]
    assert judge(samples, spread_s=SPREAD_S, tolerance=0.35).side is not Side.SLOWER
    judged = judge([*samples, sample(8000, 1.0, 0.08, rng)], spread_s=SPREAD_S, tolerance=0.35)
    assert judged.excess is None or judged.side is Side.SLOWER


def test_nothing_measured_says_nothing() -> None:
    judged = judge([], spread_s=SPREAD_S, tolerance=0.35)
    assert (judged.side, judged.excess) == (Side.UNRESOLVED, None)


def test_few_sizes_of_both_do_not_outvote_each_sides_own() -> None:
    """A quadratic program and a linear one: where both have times, the linear one's are noise."""
    judged = []
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311
        both = [rng.randint(9_000, 14_500) for _ in range(8)]
        alone = [rng.randint(90_000, 300_000) for _ in range(10)]
        samples = [
            Sample(
                size=size,
                floor_s=rng.uniform(-2e-4, 2e-4),
                reference_s=1.7e-7 * size + rng.uniform(0, 2e-4) + 2e-3 * (rng.random() < 0.3),
                solution_s=2.9e-10 * size**2 * rng.uniform(0.95, 1.1) if size in both else None,
            )
            for size in (*both, *alone)
        ]
        judged.append(judge(samples, spread_s=SPREAD_S, tolerance=0.35).side)
    assert judged.count(Side.WITHIN) == 0
    assert judged.count(Side.SLOWER) > 150


@pytest.mark.parametrize("start_s", [0.01, 0.02, 0.04, 0.06, 0.08, 0.09])
def test_a_slow_start_does_not_hide_what_comes_after(start_s: float) -> None:
    """Up to where it is stopped, what grows is a small part of its time."""
    sides = [
        measured(lambda n: start_s + COSTS["quadratic"](n), COSTS["linear"], seed=seed).side
        for seed in range(20)
    ]
    assert sides.count(Side.WITHIN) <= 1
    if start_s <= 0.04:
        assert sides.count(Side.SLOWER) >= 15


@pytest.mark.parametrize("start_s", [0.03, 0.05])
@pytest.mark.parametrize("name", ["log", "linear", "n_log_n", "quadratic"])
def test_a_slow_start_alone_is_no_growth(name: str, start_s: float) -> None:
    sides = [
        measured(lambda n: start_s + COSTS[name](n), COSTS[name], seed=seed).side
        for seed in range(20)
    ]
    assert Side.SLOWER not in sides
    assert sides.count(Side.WITHIN) >= 15
