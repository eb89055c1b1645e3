"""Who is blamed when something does not get through: the solution, the tests, or us."""

import asyncio

import pytest

from tiltyard.core.task import CallSuite, PytestSuite
from tiltyard.core.verdict import CheckStatus, Outcome
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.verifier import Verifier
from verify.processes import kill_runs
from verify.tasks import CALLS, REFERENCE, SPEC, TESTS, WRONG, answer, task, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

SUITES = pytest.mark.parametrize("hidden", [CALLS, TESTS], ids=["calls", "pytest"])


HEAVY = PytestSuite(
    files={
        "test_a.py": "from solution import f\ndef test_a():\n    assert f(1) == 1\n",
        "test_heavy.py": """
from solution import f

def test_before():
    assert f(0) == 0

def test_power():
    x = f(2)
    assert x ** x == 4

def test_after():
    assert f(3) == 3
""",
    }
)
WAITING = PytestSuite(
    files={
        "test_wait.py": "import time\nfrom solution import f\n\ndef test_wait():\n"
        "    time.sleep(f(0))\n    assert f(3) == 3\n"
    }
)
SAME = "def f(x):\n    return x\n"


@pytest.mark.slow
async def test_a_value_that_the_tests_wait_for_fails(verifier: Verifier) -> None:
    waiting = task(WAITING, reference=SAME, time_limit_s=0.5)
    assert value_of(await verifier.verify(waiting, answer(SAME))) == 1.0
    verdict = await verifier.verify(waiting, answer("def f(x):\n    return x or 10**6\n"))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert [check.status for check in verdict.checks] == [CheckStatus.TIMEOUT]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "statuses"),
    [
        # Time: a power that takes many minutes.
        ("10 ** 7", {CheckStatus.TIMEOUT}),
        # Memory: a power with more digits than fit.
        ("1 << 40", {CheckStatus.OOM, CheckStatus.EXCEPTION, CheckStatus.TIMEOUT}),
    ],
    ids=["time", "memory"],
)
async def test_a_value_that_the_tests_choke_on_fails(
    verifier: Verifier, value: str, statuses: set[CheckStatus]
) -> None:
    heavy = task(HEAVY, reference=SAME, time_limit_s=1.0)
    assert value_of(await verifier.verify(heavy, answer(SAME))) == 1.0
    source = f"def f(x):\n    return {value} if x == 2 else x\n"
    verdict = await verifier.verify(heavy, answer(source))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert value_of(verdict) == 0.0
    by_id = {check.id: check.status for check in verdict.checks}
    assert by_id["test_a.py::test_a"] is CheckStatus.PASSED
    assert by_id["test_heavy.py::test_before"] is CheckStatus.PASSED
    assert by_id["test_heavy.py::test_power"] in statuses


@pytest.mark.slow
async def test_large_answers_are_compared_in_time(verifier: Verifier) -> None:
    """Explaining how two large texts differ takes hours; saying that they do takes no time."""
    tests = "from solution import f\ndef test_text():\n    assert f() == 'x'\n"
    suite = PytestSuite(files={"test_text.py": tests})
    reference = "def f():\n    return 'x'\n"
    lines = """
import random


def f():
    return "\\n".join(str(random.random()) for _ in range(60_000))
"""
    verdict = await verifier.verify(task(suite, reference=reference), answer(lines))
    assert [check.status for check in verdict.checks] == [CheckStatus.WRONG_ANSWER]
    assert "assert f() == 'x'" in verdict.checks[0].evidence


SLOW_READER = REFERENCE + "\nimport time\ntime.sleep(0.3)\n"


@pytest.mark.slow
@SUITES
async def test_a_lost_sandbox_is_tried_once_more(
    provider: NativeProvider, hidden: CallSuite | PytestSuite
) -> None:
    async with Verifier(provider, interpreter=provider.interpreter, spec=SPEC, cells_max=1) as own:
        assert value_of(await own.verify(task(hidden), answer(REFERENCE))) == 1.0
        for source, value in ((SLOW_READER, 1.0), (SLOW_READER + WRONG, 0.0)):
            async with asyncio.TaskGroup() as group:
                judging = group.create_task(own.verify(task(hidden), answer(source)))
                await kill_runs(times=1)
            verdict = judging.result()
            assert verdict.outcome is Outcome.GRADED, verdict.detail
            assert value_of(verdict) == value
            assert verdict.detail == "verified again after a sandbox was lost"


@pytest.mark.slow
async def test_a_sandbox_lost_twice_is_a_fault_without_a_reward(provider: NativeProvider) -> None:
    async with Verifier(provider, interpreter=provider.interpreter, spec=SPEC, cells_max=1) as own:
        async with asyncio.TaskGroup() as group:
            judging = group.create_task(own.verify(task(), answer(SLOW_READER)))
            await kill_runs(times=2)
        verdict = judging.result()
        assert verdict.outcome is Outcome.INFRA_FAULT
        assert value_of(verdict) is None
        assert value_of(await own.verify(task(), answer(REFERENCE))) == 1.0


@pytest.mark.slow
async def test_cancelling_a_verification_at_any_moment(provider: NativeProvider) -> None:
    async with Verifier(provider, interpreter=provider.interpreter, spec=SPEC, cells_max=1) as own:
        turns = 0
        while True:
            async with asyncio.TaskGroup() as group:
                judging = group.create_task(own.verify(task(), answer(REFERENCE)))
                for _ in range(turns):
                    await asyncio.sleep(0)
                judging.cancel()
            if not judging.cancelled():
                break
            turns += 1 + turns // 5
        assert value_of(judging.result()) == 1.0
        assert value_of(await own.verify(task(), answer(WRONG))) == 0.0


async def test_a_provider_that_is_gone(provider: NativeProvider) -> None:
    async with (
        NativeProvider() as second,
        Verifier(second, interpreter=provider.interpreter, spec=SPEC, cells_max=1) as own,
    ):
        await second.aclose()
        verdict = await own.verify(task(), answer(REFERENCE))
        assert verdict.outcome is Outcome.INFRA_FAULT
        assert value_of(verdict) is None
