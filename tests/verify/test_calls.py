"""Judging by plain calls: large values, kept arguments, expected exceptions."""

from typing import Any

import pytest

from tiltyard.core.execution import MIB
from tiltyard.core.task import CallCase, CallSuite, Compare, MethodCall
from tiltyard.core.verdict import CheckStatus
from tiltyard.verify.verifier import Verifier
from verify.tasks import answer, task, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]


@pytest.mark.slow
async def test_more_arguments_than_a_run_holds_at_once(verifier: Verifier) -> None:
    """An honest solution that is slow to read must not be ended for what it was sent."""
    big = b"x" * (7 * MIB)
    cases = tuple(CallCase(id=str(n), target="size", args=(big,), expected=n) for n in range(6))
    source = f"""
import time
calls = iter(range(6))
until = time.process_time() + 0.2
while time.process_time() < until:
    pass


def size(data):
    assert len(data) == {7 * MIB}
    return next(calls)
"""
    verdict = await verifier.verify(task(CallSuite(cases=cases)), answer(source))
    assert value_of(verdict) == 1.0, verdict.checks


@pytest.mark.slow
async def test_large_values_pass_both_ways(verifier: Verifier) -> None:
    numbers: list[Any] = list(range(90_000))
    names: dict[Any, Any] = {str(n): n for n in range(20_000)}
    suite = CallSuite(
        cases=(
            CallCase(id="list", target="same", args=(numbers,), expected=numbers),
            CallCase(id="dict", target="same", args=(names,), expected=names),
        )
    )
    verdict = await verifier.verify(task(suite), answer("def same(x):\n    return x\n"))
    assert value_of(verdict) == 1.0, verdict.checks


async def test_arguments_that_must_be_kept(verifier: Verifier) -> None:
    suite = CallSuite(
        cases=(
            CallCase(id="call", target="f", args=([2, 1],), expected=[1, 2], arguments_kept=True),
            CallCase(
                id="object",
                target="Box",
                args=([2, 1],),
                then=(MethodCall(name="first"),),
                expected=[1],
                arguments_kept=True,
            ),
        )
    )
    keeps = """
def f(xs):
    return sorted(xs)


class Box:
    def __init__(self, xs):
        self.xs = sorted(xs)

    def first(self):
        return self.xs[0]
"""
    changes = keeps.replace("return sorted(xs)", "xs.sort()\n    return xs").replace(
        "self.xs = sorted(xs)", "xs.sort()\n        self.xs = xs"
    )
    assert value_of(await verifier.verify(task(suite), answer(keeps))) == 1.0
    verdict = await verifier.verify(task(suite), answer(changes))
    assert [check.status for check in verdict.checks] == [CheckStatus.WRONG_ANSWER] * 2
    assert "changed its arguments" in verdict.checks[0].evidence


async def test_what_must_be_raised(verifier: Verifier) -> None:
    suite = CallSuite(cases=(CallCase(id="one", target="f", args=(1,), raises="ValueError"),))
    for source, passed in {
        "def f(x): raise ValueError('x')": True,
        "class Own(ValueError): pass\ndef f(x): raise Own": True,
        "def f(x): raise Exception('x')": False,
        "def f(x): return ValueError()": False,
        "def f(x): return None": False,
        "class ValueError(Exception): pass\ndef f(x): raise ValueError": False,
        "import builtins\nclass V(Exception): pass\nbuiltins.ValueError = V\n"
        "def f(x): raise V": False,
    }.items():
        verdict = await verifier.verify(task(suite), answer(source))
        assert verdict.all_passed == passed, source


async def test_comparisons_and_weights_of_cases(verifier: Verifier) -> None:
    suite = CallSuite(
        cases=(
            CallCase(
                id="set",
                target="f",
                args=([1, 2],),
                expected=[1, 2],
                compare=Compare.UNORDERED,
                weight=3.0,
            ),
            CallCase(id="one", target="f", args=([3],), expected=[[3], []], compare=Compare.ANY_OF),
        )
    )
    for source, passed, score in (
        ("def f(x):\n    return x[::-1]\n", 2, 1.0),
        ("def f(x):\n    return sorted(x) if len(x) > 1 else None\n", 1, 0.75),
        ("def f(x):\n    return [] if len(x) == 1 else set(x)\n", 1, 0.25),
        ("import os; os._exit(1)", 0, 0.0),
    ):
        verdict = await verifier.verify(task(suite), answer(source))
        assert [check.weight for check in verdict.checks] == [3.0, 1.0]
        assert (verdict.passed, verdict.score) == (passed, score), verdict.checks
