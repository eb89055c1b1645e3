"""A task whose own reference fails its cases pays nobody and punishes nobody."""

import pytest

from tiltyard.core.task import CallCase, CallSuite
from tiltyard.core.verdict import Outcome
from tiltyard.tasks.check import Soundness, check_task
from tiltyard.verify.verifier import Verifier
from verify.tasks import CALLS, REFERENCE, WRONG, answer, task, value_of

pytestmark = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

MISTAKEN = CallSuite(
    cases=(
        CallCase(id="right", target="add", args=(5, 7), expected=12),
        CallCase(id="slip", target="add", args=(2, 2), expected=5),
    )
)


@pytest.mark.parametrize("source", [REFERENCE, WRONG], ids=["right", "wrong"])
async def test_a_reference_that_fails_a_case_is_the_graders_fault(
    verifier: Verifier, source: str
) -> None:
    verdict = await verifier.verify(task(MISTAKEN, reference_checked=False), answer(source))

    assert verdict.outcome is Outcome.GRADER_FAULT
    assert value_of(verdict) is None
    assert "its reference fails 1 of 2 tests; first slip (wrong_answer)" in verdict.detail
    assert "add(2, 2) gave 4, expected 5" in verdict.detail


async def test_a_reference_that_passes_changes_nothing(verifier: Verifier) -> None:
    unchecked = task(CALLS, reference_checked=False)

    assert value_of(await verifier.verify(unchecked, answer(REFERENCE))) == 1.0
    assert value_of(await verifier.verify(unchecked, answer(WRONG))) == 0.0


@pytest.mark.slow
async def test_the_reference_is_run_once_for_a_task(verifier: Verifier) -> None:
    slow = "import time\n\nstarted = time.monotonic()\nwhile time.monotonic() < started + 0.3:\n"
    reference = f"{slow}    pass\n\n\ndef add(a, b):\n    return a + b\n"
    case = CallCase(id="one", target="add", args=(1, 1), expected=2)
    unchecked = task(CallSuite(cases=(case,)), reference=reference, reference_checked=False)

    walls = [(await verifier.verify(unchecked, answer(REFERENCE))).wall_s for _ in range(3)]

    assert walls[0] > 0.3
    assert min(walls[1:]) < 0.3


async def test_the_check_of_a_task_names_the_case_once(verifier: Verifier) -> None:
    report = await check_task(task(MISTAKEN, reference_checked=False), verifier.verify)

    assert report.soundness is Soundness.UNSOUND
    (problem,) = report.problems
    assert "first slip (wrong_answer)" in problem
