"""Leaks: twenty programs that leak or only look like it, and how a verdict says so."""

import pytest

from tiltyard.core.checks import Checks, Inputs, Leaks
from tiltyard.core.verdict import Component, Gap
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.dynamic.bench import Bench
from tiltyard.verify.dynamic.leak_rule import Reading, Series, trends
from tiltyard.verify.dynamic.leaks import LeakMeter
from tiltyard.verify.verifier import Verifier
from verify.leak_programs import NUMBERS, PROGRAMS, Program, leak_task
from verify.measured import components, measured_task, verdict_on
from verify.tasks import SPEC

SAMPLE = ("plain", "list kept", "cache of 256", "one in fifty", "descriptors", "C: malloc")
sandboxed = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


def wrong(program: Program, component: Component) -> str:
    """Empty when it was told right."""
    said = " ".join(each.message for each in component.evidence)
    if component.normalised is None or (component.normalised == 1.0) is bool(program.leaks):
        return f"{program.name}: {component.gap} {said}"
    return "" if program.leaks in said else f"{program.name}: {said}"


@pytest.mark.usefixtures("billed")
class TestMeasured:
    pytestmark = sandboxed

    @pytest.mark.collection
    async def test_programs_are_told_right(
        self, provider: NativeProvider, verify_repeats: int
    ) -> None:
        """A sample of the programs, once; or all, as often as the command line says."""
        programs = [each for each in PROGRAMS if verify_repeats or each.name in SAMPLE]
        failed: list[str] = []
        async with Bench(provider, interpreter=provider.interpreter, spec=SPEC) as bench:
            for seed in range(max(verify_repeats, 1)):
                for program in programs:
                    source = program.source.encode()
                    meter = LeakMeter(bench, leak_task(program), source, seed=seed)
                    said = wrong(program, await meter.measure())
                    print(f"{seed} {program.name}: {said or 'right'}")  # noqa: T201
                    failed += [said] if said else []
        print(f"{len(failed)} of {len(programs) * max(verify_repeats, 1)} wrong")  # noqa: T201
        assert failed == []

    async def test_in_a_verdict(self, verifier: Verifier) -> None:
        task = measured_task(
            "def f(xs):\n    return sum(xs)\n",
            Checks(inputs=Inputs(source=NUMBERS, target="f"), leaks=Leaks()),
            cases=((([1, 2],), 3),),
        )
        got = components(await verdict_on(verifier, task, "kept = []\n" + LEAKS))["leaks"]
        assert (got.normalised, got.unit) == (0.0, "bytes per call")
        assert {curve.name for curve in got.curves} >= {"private memory", "descriptors", "threads"}
        dies = "calls = []\n" + DIES
        got = components(await verdict_on(verifier, task, dies))["leaks"]
        assert (got.raw, got.gap) == (None, Gap.NOT_POSSIBLE)
        assert "ended at call 101" in got.evidence[0].message


LEAKS = "def f(xs):\n    kept.append(list(xs))\n    return sum(xs)\n"
DIES = """
import os
def f(xs):
    calls.append(0)
    return os._exit(0) if len(calls) > 100 else sum(xs)
"""


def test_there_are_twenty_programs() -> None:
    assert len({program.name for program in PROGRAMS}) == 20


def readings(values: list[float], series: Series) -> list[Reading]:
    return [Reading(calls=4 * at, values={series: value}) for at, value in enumerate(values)]


def leaks(values: list[float], series: Series = Series.PRIVATE) -> bool:
    (trend,) = trends(readings(values, series), bytes_per_call_max=64.0)
    return trend.leaks


def test_growth_that_ends_is_none() -> None:
    assert leaks([1000.0 * at for at in range(100)])
    assert not leaks([1000.0 * min(at, 60) for at in range(100)])
    assert not leaks([1e6] * 100)
    assert not leaks([1e6 - 1000.0 * at for at in range(100)])


def test_growth_below_the_limit_is_none() -> None:
    assert leaks([4 * 70.0 * at for at in range(400)])
    assert not leaks([4 * 60.0 * at for at in range(400)])


def test_a_few_pages_are_none() -> None:
    assert not leaks([4 * 270.0 * at for at in range(26)])
    assert leaks([4 * 2700.0 * at for at in range(26)])


def test_steps_are_seen() -> None:
    assert leaks([float(at // 12) for at in range(100)], Series.DESCRIPTORS)
    assert not leaks([float(at // 98) for at in range(100)], Series.DESCRIPTORS)


def test_a_peak_now_and_then_is_none() -> None:
    assert not leaks([1e6 + (5e6 if at % 7 == 0 else 0.0) for at in range(100)])


def test_a_few_readings_say_nothing() -> None:
    assert trends(readings([1.0] * 5, Series.THREADS), bytes_per_call_max=64.0) == ()
