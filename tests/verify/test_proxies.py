"""Ordinary tests run unchanged against what is not there."""

import pytest

from tiltyard.core.task import PytestSuite
from tiltyard.core.verdict import Outcome, Verdict
from tiltyard.verify.verifier import Verifier
from verify.library import LIBRARY, TESTS
from verify.tasks import answer, task, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]


def suite(tests: str, *, inplace: bool = False, helper: str = "") -> PytestSuite:
    return PytestSuite(files={"test_it.py": tests, "helper.py": helper}, inplace=inplace)


async def judged(
    verifier: Verifier,
    tests: str,
    source: str,
    *,
    reference: str = LIBRARY,
    time_limit_s: float = 5.0,
    inplace: bool = False,
    helper: str = "",
) -> Verdict:
    hidden = suite(tests, inplace=inplace, helper=helper)
    return await verifier.verify(
        task(hidden, reference=reference, time_limit_s=time_limit_s, reference_checked=False),
        answer(source),
    )


async def test_ordinary_tests_run_unchanged(verifier: Verifier) -> None:
    verdict = await judged(verifier, TESTS, LIBRARY)
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert value_of(verdict) == 1.0, verdict.checks
    assert len(verdict.checks) == 11


async def test_an_empty_solution_passes_none_of_them(verifier: Verifier) -> None:
    verdict = await judged(verifier, TESTS, "")
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert verdict.passed == 0, verdict.checks
    assert len(verdict.checks) == 11


INPLACE = """
import solution


def test_changes_are_seen():
    rows, first = [[3, 1], [2]], None
    first = rows[0]
    solution.work(rows, pairs := {"b": 2, "a": [1]}, seen={1}, raw=(raw := bytearray(b"xy")))
    assert rows == [[1, 3], [2], "more"] and first is rows[0]
    assert pairs == {"a": [1, 2], "c": 3}
    assert raw == bytearray(b"x!")


def test_changes_before_an_exception():
    xs = [1, 2]
    try:
        solution.spoil(xs)
    except ValueError:
        assert xs == []
    else:
        raise AssertionError
"""
WORKER = """
def work(rows, pairs, seen, raw):
    rows[0].sort()
    rows.append("more")
    pairs["a"].append(2)
    del pairs["b"]
    pairs["c"] = 3
    seen.clear()
    raw[:] = b"x!"


def spoil(xs):
    xs.clear()
    raise ValueError
"""


async def test_work_in_place_is_seen_where_a_suite_asks_for_it(verifier: Verifier) -> None:
    verdict = await judged(verifier, INPLACE, WORKER, reference=WORKER, inplace=True)
    assert value_of(verdict) == 1.0, verdict
    idle = "def work(*args, **kwargs): pass\ndef spoil(xs): raise ValueError\n"
    verdict = await judged(verifier, INPLACE, idle, reference=WORKER, inplace=True)
    assert (verdict.outcome, verdict.passed) == (Outcome.GRADED, 0), verdict
    without = await judged(verifier, INPLACE, WORKER, reference=WORKER)
    assert without.outcome is Outcome.GRADER_FAULT


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("solution.inc(lambda: 1)", "<lambda>, which is of the tests"),
        ("solution.inc(test_it)", "test_it, which is of the tests"),
        ("solution.inc(object())", "a value of type object cannot go"),
        ("solution.inc({solution.Bag: 1})", "decides nothing by __hash__"),
        ("solution.Bag() == 3", "decides nothing by __eq__"),
        ("solution.Bag() != solution.Bag()", "decides nothing by __ne__"),
        ("solution.Bag() < 3", "decides nothing by __lt__"),
        ("hash(solution.Bag())", "decides nothing by __hash__"),
        ("abs(solution.Bag() - 1)", "decides nothing by __sub__"),
        ("1.5 * solution.Bag()", "decides nothing by __rmul__"),
        ("float(solution.Bag())", "decides nothing by __float__"),
        ("types.new_class('Sub', (solution.Bag,))", "decides nothing by being a base"),
    ],
)
async def test_what_cannot_be_done_names_the_reason(
    verifier: Verifier, body: str, words: str
) -> None:
    """Also a test that expects a TypeError does not pass by one of ours."""
    tests = (
        "import types, pytest, solution\ndef test_it():\n"
        f"    with pytest.raises(TypeError):\n        {body}\n"
    )
    verdict = await judged(verifier, tests, LIBRARY)
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert words in verdict.detail
