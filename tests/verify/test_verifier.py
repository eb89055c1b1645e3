"""The verifier's invariants: what is paid, what is not, and what tests must be."""

import asyncio
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tiltyard.core.execution import MIB
from tiltyard.core.task import CallCase, CallSuite, PytestSuite, Submission
from tiltyard.core.verdict import CheckStatus, Outcome
from tiltyard.verify.compare import same
from tiltyard.verify.verifier import Verifier
from verify.tasks import CALLS, REFERENCE, TESTS, WRONG, answer, task, value_of
from verify.values import VALUES

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

SUITES = pytest.mark.parametrize("hidden", [CALLS, TESTS], ids=["calls", "pytest"])
# The verifier is open for the whole module on purpose: no example may depend on another.
PROPERTY = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.slow
@PROPERTY
@given(expected=VALUES, got=VALUES, right=st.booleans())
async def test_a_value_passes_when_it_is_the_expected_one(
    verifier: Verifier, expected: Any, got: Any, right: bool
) -> None:
    if right:
        got = expected
    source = f"from math import inf, nan\n\ndef f():\n    return {got!r}\n"
    suite = CallSuite(cases=(CallCase(id="one", target="f", expected=expected),))
    verdict = await verifier.verify(task(suite), answer(source))
    assert verdict.outcome is Outcome.GRADED
    assert verdict.all_passed == same(expected, got, tolerance=suite.float_tolerance)


NAMES = st.sampled_from(
    [
        *("conftest.py", "pytest.ini", "tox.ini", "setup.cfg", "pyproject.toml", "x.pth"),
        *("sitecustomize.py", "usercustomize.py", "test_hidden.py", "checker.py", "codec.py"),
        *("zygote.py", "solution/__init__.py", "solution.pyc", "__pycache__/solution.pyc"),
        *(
            "pytest.py",
            "json.py",
            "math.py",
            "tests/test_hidden.py",
            "notes.txt",
            "sub/solution.py",
        ),
    ]
)
CONTENTS = st.sampled_from(
    [
        b"",
        b"import os; os._exit(0)\n",
        b"def add(a, b): return a + b\ndef order(xs): return sorted(xs)\n",
        b"[pytest]\naddopts = --collect-only\n",
        b"import pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_pyfunc_call(): return True\n",
        b"\xff\xfe\x00",
    ]
)


@pytest.mark.slow
@SUITES
@PROPERTY
@given(files=st.dictionaries(NAMES, CONTENTS, max_size=5), right=st.booleans())
async def test_adding_files_never_raises_a_reward(
    verifier: Verifier,
    hidden: CallSuite | PytestSuite,
    files: dict[str, bytes],
    right: bool,
) -> None:
    source = REFERENCE if right else WRONG
    submission = Submission(files={**files, "solution.py": source.encode()})
    verdict = await verifier.verify(task(hidden), submission)
    assert verdict.outcome is Outcome.GRADED
    assert verdict.all_passed == right, "what else it ships changes no check"
    assert value_of(verdict) == (1.0 if right and not verdict.tamper else 0.0)


@SUITES
@pytest.mark.slow
async def test_the_reference_is_paid_and_nothing_cheaper(
    verifier: Verifier, hidden: CallSuite | PytestSuite
) -> None:
    assert value_of(await verifier.verify(task(hidden), answer(REFERENCE))) == 1.0
    constants = ["0", "12", "[]", "[1, 2, 3]", "None", "True", "[1, 3]"]
    sources = ["", "# nothing\n", WRONG, *(f"add = order = lambda *_: {c}\n" for c in constants)]
    for source in sources:
        verdict = await verifier.verify(task(hidden), answer(source))
        assert verdict.outcome is Outcome.GRADED
        assert value_of(verdict) == 0.0


@pytest.mark.parametrize("source", [b"\xff\xfe", b"\x00", b"# coding: latin-9000\n", b"def f(:\n"])
@SUITES
async def test_a_source_that_is_none(
    verifier: Verifier, hidden: CallSuite | PytestSuite, source: bytes
) -> None:
    verdict = await verifier.verify(task(hidden), answer(source))
    assert value_of(verdict) == 0.0
    assert {check.status for check in verdict.checks} <= {
        CheckStatus.EXCEPTION,
        CheckStatus.NOT_RUN,
    }
    assert re.match(r"while loading: (Syntax|Value)Error: ", verdict.checks[0].evidence)


async def test_without_a_source_it_is_the_agents_fault(verifier: Verifier) -> None:
    for submission in (
        Submission(files={}),
        Submission(files={}, links={"solution.py": "/etc/passwd"}),
        answer("x" * (2 * MIB)),
    ):
        verdict = await verifier.verify(task(), submission)
        assert verdict.outcome is Outcome.AGENT_FAULT
        assert value_of(verdict) == 0.0


@pytest.mark.slow
async def test_verdicts_at_once_do_not_mix(verifier: Verifier) -> None:
    async def judge(number: int) -> bool:
        right = number % 3 > 0
        hidden = TESTS if number % 2 else CALLS
        verdict = await verifier.verify(task(hidden), answer(REFERENCE if right else WRONG))
        return value_of(verdict) == (1.0 if right else 0.0)

    async with asyncio.TaskGroup() as group:
        judged = [group.create_task(judge(number)) for number in range(18)]
    assert all(one.result() for one in judged)


@pytest.mark.parametrize(
    ("hidden", "detail"),
    [
        (CallSuite(cases=()), "has no tests"),
        (PytestSuite(files={}), "has no tests"),
        (PytestSuite(files={"helper.py": "def test_x(): pass\n"}), "has no tests"),
        (PytestSuite(files={"test_empty.py": "x = 1\n"}), "has no tests"),
        (PytestSuite(files={"test_bad.py": "def test_x(:\n"}), "cannot be collected"),
        (PytestSuite(files={"test_bad.py": "import no_such_module\n"}), "cannot be collected"),
        (PytestSuite(files={"test_bad.py": "def test_x(): assert 0\n"}), "reference fails 1 of 1"),
        (
            PytestSuite(files={"test_skip.py": "import pytest\ndef test_x(): pytest.skip('x')\n"}),
            "reference fails 1 of 1",
        ),
        (
            PytestSuite(
                files={"test_x.py": "import pytest\n@pytest.mark.xfail\ndef test_x(): assert 0\n"}
            ),
            "reference fails 1 of 1",
        ),
        (PytestSuite(files={"test_exit.py": "import os\nos._exit(0)\n"}), "did not get through"),
        (PytestSuite(files={"test_big.py": "#" + "x" * (9 * MIB)}), "too many bytes"),
        (
            CallSuite(cases=(CallCase(id="1", target="add", args=("x" * (9 * MIB),)),)),
            "too many bytes",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.slow
async def test_tests_that_are_none_are_a_fault_without_a_reward(
    verifier: Verifier, hidden: CallSuite | PytestSuite, detail: str
) -> None:
    for source in (REFERENCE, WRONG, "import os; os._exit(0)"):
        verdict = await verifier.verify(task(hidden), answer(source))
        assert verdict.outcome is Outcome.GRADER_FAULT
        assert detail in verdict.detail
        assert value_of(verdict) is None


@pytest.mark.parametrize("time_limit_s", [0.0, -1.0, float("nan"), float("inf"), 1e9])
async def test_a_time_limit_that_is_none(verifier: Verifier, time_limit_s: float) -> None:
    """A run without one would hold its cell for ever."""
    verdict = await verifier.verify(task(time_limit_s=time_limit_s), answer(REFERENCE))
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert "time limit" in verdict.detail
    assert value_of(verdict) is None


@pytest.mark.slow
async def test_tests_that_never_end_are_a_fault_of_theirs(verifier: Verifier) -> None:
    endless = PytestSuite(files={"test_x.py": "def test_x():\n    while True: pass\n"})
    verdict = await verifier.verify(task(endless, time_limit_s=0.5), answer(REFERENCE))
    assert verdict.outcome is Outcome.GRADER_FAULT
    assert "did not get through: ended: wall_timeout" in verdict.detail


async def test_a_reference_that_is_no_text(verifier: Verifier) -> None:
    broken = replace(task(TESTS), reference="\ud800")
    verdict = await verifier.verify(broken, answer(REFERENCE))
    assert verdict.outcome is Outcome.GRADER_FAULT
