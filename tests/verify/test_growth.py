"""Time complexity beside the reference, measured in sandboxes; no test looks at absolute time."""

from dataclasses import replace

import pytest

from tiltyard.core.checks import Checks, Growth, Inputs
from tiltyard.core.verdict import Component, Gap
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.dynamic import function_growth
from tiltyard.verify.dynamic.bench import Bench
from tiltyard.verify.verifier import Verifier
from verify.growth_functions import (
    MERGE_SORT,
    NUMBERS,
    PAIRS,
    SMALL_N_QUICK,
    SORTED,
    Pair,
    growth_task,
)
from verify.measured import components, measured_task, verdict_on
from verify.tasks import SPEC

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.slow,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.usefixtures("billed"),
]

SECONDS_MAX = 3.0
SAMPLE = ("linear beside linear", "quadratic beside log")
RIGHT_SHARE_MIN = 0.9
TASK = measured_task(
    MERGE_SORT,
    Checks(
        inputs=Inputs(source=NUMBERS, target="f"),
        growth=Growth(size_min=16, size_max=100_000, seconds_max=SECONDS_MAX),
    ),
    cases=((([3, 1, 2],), 2), (([5],), 5)),
)


def side(pair: Pair, component: Component) -> str:
    """Empty when it is the right one."""
    if component.normalised is None:
        return f"{pair.name}: {component.gap}: {component.evidence[0].message}"
    if (component.normalised < 1) is not pair.slower:
        return f"{pair.name}: {component.raw}: {component.evidence[0].message}"
    return ""


@pytest.mark.collection
async def test_functions_land_on_the_right_side(
    provider: NativeProvider, verify_repeats: int
) -> None:
    """A sample of the pairs, once; or all, as often as the command line says."""
    pairs = [pair for pair in PAIRS if verify_repeats or pair.name in SAMPLE]
    assert len({pair.name for pair in PAIRS}) == 40
    assert len(pairs) >= len(SAMPLE)
    wrong: list[str] = []
    async with Bench(provider, interpreter=provider.interpreter, spec=SPEC) as bench:
        for seed in range(max(verify_repeats, 1)):
            for pair in pairs:
                task = growth_task(pair, seconds_max=SECONDS_MAX)
                source = pair.solution.encode()
                (found,) = await function_growth.measure(bench, task, source=source, seed=seed)
                said = side(pair, found)
                print(f"{seed} {pair.name}: {said or 'right'}")  # noqa: T201 - `make measures`
                wrong += [said] if said else []
    measured = len(pairs) * max(verify_repeats, 1)
    print(f"{measured - len(wrong)} of {measured} on the right side")  # noqa: T201
    assert 1 - len(wrong) / measured >= RIGHT_SHARE_MIN, wrong


@pytest.mark.long
async def test_as_steep_as_its_reference(verifier: Verifier) -> None:
    """Of the pairs that are hardest to tell: more often said than denied, in what time tasks give
    by default."""
    growth = Growth(size_min=16, size_max=100_000)
    task = replace(TASK, checks=replace(TASK.checks, growth=growth))
    found = [components(await verdict_on(verifier, task, SORTED))["growth"] for _ in range(3)]
    right = [each for each in found if each.normalised == 1.0]
    wrong = [each for each in found if each.normalised not in {1.0, None}]
    assert len(right) > len(wrong), [each.evidence for each in found]
    assert [curve.name for curve in right[0].curves] == ["solution", "reference"]
    assert all(curve.points for curve in right[0].curves)


async def test_quick_for_small_inputs_only(verifier: Verifier) -> None:
    got = components(await verdict_on(verifier, TASK, SMALL_N_QUICK))["growth"]
    assert got.normalised is not None
    assert got.normalised < 0.8, got.evidence


@pytest.mark.long
async def test_a_slow_start_hides_no_growth(verifier: Verifier) -> None:
    """It spends most of what ends the climb on every input."""
    source = f"""
import time

def f(xs):
    until = time.process_time() + {SECONDS_MAX / 60}
    while time.process_time() < until:
        pass
    for _ in range(len(xs) // 20):
        sorted(xs)
    return sorted(xs)[len(xs) // 2]
"""
    got = components(await verdict_on(verifier, TASK, source))["growth"]
    assert got.normalised is None or got.normalised < 1.0, got.evidence


async def test_quick_and_wrong_for_large_inputs(verifier: Verifier) -> None:
    source = "def f(xs):\n    return sorted(xs)[len(xs) // 2] if len(xs) < 200 else 7\n"
    got = components(await verdict_on(verifier, TASK, source))["growth"]
    assert (got.raw, got.gap) == (None, Gap.NOT_POSSIBLE)
    assert "answer" in got.evidence[0].message


async def test_what_dies_of_large_inputs_has_no_growth(verifier: Verifier) -> None:
    source = "import os\n" + SORTED.replace("return", "return os._exit(0) if xs[99:] else")
    got = components(await verdict_on(verifier, TASK, source))["growth"]
    assert (got.raw, got.gap) == (None, Gap.NOT_POSSIBLE)


@pytest.mark.parametrize(
    "source",
    ["def generate(rng, size):\n    return [1]\n", "def generate(", "generate = 5\n"],
)
async def test_a_bad_generator_is_no_fault_of_the_solution(verifier: Verifier, source: str) -> None:
    checks = replace(TASK.checks, inputs=Inputs(source=source, target="f"))
    verdict = await verdict_on(verifier, replace(TASK, checks=checks), SORTED)
    assert components(verdict)["growth"].gap is Gap.INFRA
    assert verdict.all_passed
