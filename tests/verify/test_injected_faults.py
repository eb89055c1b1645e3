"""Faults of ours, made on purpose while something is judged: none of them ever yields a number.

Each goes through the whole verifier. What is lost once is judged again and comes out the same; what
is lost again has no reward; and a full disk gives a submission at most what it earned.
"""

import asyncio
from dataclasses import dataclass, replace

import pytest

from chosen import sampled
from tiltyard.core.execution import MIB
from tiltyard.core.task import (
    CompareOutput,
    ProgramCase,
    ProgramSuite,
    ScriptSuite,
    Submission,
    Task,
)
from tiltyard.core.verdict import Outcome
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.verifier import Verifier
from verify.processes import kill_all_runs, kill_runs
from verify.repositories import REFERENCE as PROJECT, WRONG as WRONG_PROJECT, left, repository
from verify.tasks import CALLS, REFERENCE, SPEC, TESTS, WRONG, answer, task, value_of

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]

AGAIN = "verified again after a sandbox was lost"
WAITS = "\nimport time\ntime.sleep(0.4)\n"
ADDS = "print(sum(map(int, input().split())))\n"
PROGRAM = ProgramSuite(
    source="solution.py",
    run=("python3", "solution.py"),
    cases=tuple(
        ProgramCase(id=f"{n}", stdin=f"{n} 2\n".encode(), expected=f"{n + 2}\n".encode())
        for n in range(2)
    ),
)
SCRIPT = ScriptSuite(
    tests={"test.sh": b'[ "$(sh run.sh)" = right ]\necho $((! $?)) > /logs/verifier/reward.txt\n'},
    reference={"run.sh": b"echo right\n"},
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mode, with submissions that take long enough to be hit."""

    judged: Task
    right: Submission
    wrong: Submission
    depth: int = 2


def cases() -> dict[str, Case]:
    plain = task(reference_checked=False)
    return {
        "calls": Case(
            judged=task(CALLS), right=answer(REFERENCE + WAITS), wrong=answer(WRONG + WAITS)
        ),
        "pytest": Case(
            judged=task(TESTS), right=answer(REFERENCE + WAITS), wrong=answer(WRONG + WAITS)
        ),
        "program": Case(
            judged=replace(plain, hidden=PROGRAM, reference=ADDS),
            right=answer(WAITS + ADDS),
            wrong=answer(WAITS + "print(7)\n"),
            depth=1,
        ),
        "overlay": Case(
            judged=repository(),
            right=left({"solution.py": PROJECT + WAITS.encode()}),
            wrong=left({"solution.py": WRONG_PROJECT + WAITS.encode()}),
        ),
        "script": Case(
            judged=replace(plain, hidden=SCRIPT),
            right=left({"run.sh": b"sleep 0.4\necho right\n"}),
            wrong=left({"run.sh": b"sleep 0.4\necho wrong\n"}),
        ),
    }


CASES = cases()
EACH_MODE = pytest.mark.parametrize("mode", sampled(CASES, {"pytest", "script"}))


@EACH_MODE
async def test_a_sandbox_lost_once_changes_no_verdict_and_lost_always_there_is_none(
    provider: NativeProvider, mode: str
) -> None:
    case = CASES[mode]
    async with Verifier(provider, interpreter=provider.interpreter, spec=SPEC, cells_max=1) as own:
        for submission, value in ((case.right, 1.0), (case.wrong, 0.0)):
            undisturbed = await own.verify(case.judged, submission)
            assert value_of(undisturbed) == value, undisturbed
            async with asyncio.TaskGroup() as group:
                judging = group.create_task(own.verify(case.judged, submission))
                await kill_runs(times=1, depth=case.depth)
            verdict = judging.result()
            assert (verdict.outcome, verdict.detail) == (Outcome.GRADED, AGAIN)
            statuses = [(check.id, check.status) for check in verdict.checks]
            assert statuses == [(each.id, each.status) for each in undisturbed.checks]
            assert (value_of(verdict), verdict.tamper) == (value, ())

            async with asyncio.TaskGroup() as group:
                judging = group.create_task(own.verify(case.judged, submission))
                await kill_all_runs(judging, depth=case.depth)
            verdict = judging.result()
            assert verdict.outcome is Outcome.INFRA_FAULT, verdict
            assert (value_of(verdict), verdict.checks) == (None, ())
        assert value_of(await own.verify(case.judged, case.right)) == 1.0
        assert own.sandboxes <= 2, "only kept cells"


@EACH_MODE
@pytest.mark.parametrize(
    "disk_bytes",
    [
        pytest.param(4096, marks=pytest.mark.long),
        pytest.param(16 * 1024, marks=pytest.mark.long),
        pytest.param(64 * 1024, marks=pytest.mark.long),
        MIB,
    ],
)
async def test_a_disk_of_ours_that_is_full_pays_nobody_and_costs_nobody(
    provider: NativeProvider, mode: str, disk_bytes: int
) -> None:
    case = CASES[mode]
    limits = replace(SPEC.limits, disk_bytes=disk_bytes)
    judged = replace(case.judged, limits=limits, reference_checked=False)
    async with Verifier(
        provider, interpreter=provider.interpreter, spec=replace(SPEC, limits=limits), cells_max=1
    ) as own:
        for submission, value in ((case.right, 1.0), (case.wrong, 0.0)):
            verdict = await own.verify(judged, submission)
            if verdict.outcome is Outcome.GRADED:
                assert value_of(verdict) == value, verdict
            else:
                assert verdict.outcome in {Outcome.INFRA_FAULT, Outcome.GRADER_FAULT}, verdict
                assert value_of(verdict) is None


BREAKS = {
    "aborts": "import os, sys\nif b'7' in open(sys.argv[3], 'rb').read():\n    os.abort()\n",
    "raises": "import sys\nif b'7' in open(sys.argv[3], 'rb').read():\n    raise OSError\n",
}
COMPARES = """
sys.exit(open(sys.argv[2], 'rb').read() != open(sys.argv[3], 'rb').read())
"""


@pytest.mark.long
async def test_an_output_that_hangs_its_checker_is_worth_nothing(verifier: Verifier) -> None:
    """It costs the checker all its time, which a submission must not buy a fault with."""
    hangs = "import sys\nwhile b'7' in open(sys.argv[3], 'rb').read():\n    pass\n"
    checked = replace(PROGRAM, compare=CompareOutput.CHECKER, checker=hangs + COMPARES)
    verdict = await verifier.verify(
        replace(CASES["program"].judged, hidden=checked), answer("print(7)")
    )
    assert (verdict.outcome, value_of(verdict)) == (Outcome.GRADED, 0.0), verdict


@pytest.mark.parametrize("broken", BREAKS)
async def test_a_checker_that_breaks_on_one_output_gives_no_number(
    verifier: Verifier, broken: str
) -> None:
    checked = replace(PROGRAM, compare=CompareOutput.CHECKER, checker=BREAKS[broken] + COMPARES)
    judged = replace(CASES["program"].judged, hidden=checked)
    outputs: dict[str, tuple[Outcome, float | None]] = {
        ADDS: (Outcome.GRADED, 1.0),
        "print(6)": (Outcome.GRADED, 0.0),
        "print(7)": (Outcome.GRADER_FAULT, None),
    }
    for source, expected in outputs.items():
        verdict = await verifier.verify(judged, answer(source))
        assert (verdict.outcome, value_of(verdict)) == expected, verdict
