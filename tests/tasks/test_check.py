"""The check that a task is sound, against an honest verifier and against verifiers that fail."""

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from tiltyard.core.errors import GraderError, SandboxDied, UsageError
from tiltyard.core.task import CallCase, CallSuite, Split, Submission, Task
from tiltyard.core.verdict import Check, CheckStatus, Component, Evidence, Gap, Outcome, Verdict
from tiltyard.core.weights import ComponentWeight, Weights
from tiltyard.tasks.catalog import load_tasks
from tiltyard.tasks.check import Soundness, TaskReport, check_task, check_tasks
from tiltyard.tasks.repair import make_task

Verify = Callable[[Task, Submission], Awaitable[Verdict]]

TASK = make_task(1, split=Split.TRAIN, families=["sum_above"])
PASSED = Verdict(outcome=Outcome.GRADED, checks=(Check(id="h01", status=CheckStatus.PASSED),))


def always(verdict: Verdict) -> Verify:
    async def verify(_task: Task, _submission: Submission) -> Verdict:
        return verdict

    return verify


async def test_generated_tasks_are_sound(verify: Verify) -> None:
    tasks = [*load_tasks("repair:train?count=30"), *load_tasks("repair?families=unseen&count=30")]
    reports = await check_tasks(tasks, verify, concurrency=4)
    assert {report.soundness for report in reports} == {Soundness.SOUND}
    assert [report.task_id for report in reports] == [task.id for task in tasks]
    # The pack promises that no single answer is right for more than half of the cases.
    single = [report for report in reports if "its argument" not in report.baseline_of]
    assert all(0.0 <= report.baseline <= 0.5 for report in single)
    assert any(report.baseline for report in reports)


async def test_a_reference_that_fails_is_named_with_its_checks(verify: Verify) -> None:
    report = await check_task(dataclasses.replace(TASK, reference=TASK.starter), verify)
    assert report.soundness is Soundness.UNSOUND
    assert report.problems[0].startswith("the reference fails h")
    assert "(wrong_answer)" in report.problems[0]


async def test_a_starter_that_passes_is_named(verify: Verify) -> None:
    report = await check_task(dataclasses.replace(TASK, starter=TASK.reference), verify)
    assert report.problems == ("the starter passes every check.",)


async def test_tests_that_an_empty_module_passes_are_named(verify: Verify) -> None:
    case = CallCase(id="h01", target="nothing", raises="KeyError")
    task = dataclasses.replace(
        TASK, starter="", reference="nothing = {}.__getitem__\n", hidden=CallSuite(cases=(case,))
    )
    report = await check_task(task, verify)
    assert report.problems == (
        "the reference fails h01 (wrong_answer).",
        "an empty module passes every check.",
    )


async def test_a_constant_that_passes_is_named_and_one_that_scores_is_the_baseline(
    verify: Verify,
) -> None:
    cases = [CallCase(id=f"h{n}", target="sign", args=(n - 3,), expected=n > 3) for n in range(5)]
    task = dataclasses.replace(
        TASK,
        starter="",
        reference="def sign(n):\n    return n > 0\n",
        hidden=CallSuite(cases=tuple(cases)),
    )
    report = await check_task(task, verify)
    assert (report.soundness, report.baseline) == (Soundness.SOUND, 0.8)
    assert report.baseline_of == "the constant answer False"

    report = await check_task(
        dataclasses.replace(task, hidden=CallSuite(cases=(cases[0],))), verify
    )
    assert report.problems == ("the constant answer False passes every check.",)


async def test_a_reference_that_is_more_than_files_is_judged_by_its_own_way(verify: Verify) -> None:
    async def verify_reference(task: Task) -> Verdict:
        return dataclasses.replace(PASSED, tamper=(f"of {task.id}",))

    report = await check_task(TASK, verify, verify_reference=verify_reference)
    assert report.problems == (f"the reference looks like tampering: of {TASK.id}",)


async def test_no_check_at_all_is_unsound(verify: Verify) -> None:
    report = await check_task(dataclasses.replace(TASK, hidden=CallSuite(cases=())), verify)
    assert report.problems == ("the reference fails because no check was run.",)


async def test_a_source_that_cannot_be_stored_is_a_report(verify: Verify) -> None:
    report = await check_task(dataclasses.replace(TASK, reference="'\ud800'"), verify)
    (problem,) = report.problems
    assert problem.endswith("its reference is no text that can be stored.")


async def test_a_reference_that_cannot_be_measured_leaves_the_task_undecided() -> None:
    lost = Component(
        name="growth", raw=None, gap=Gap.INFRA, evidence=(Evidence(message="no inputs"),)
    )
    report = await check_task(TASK, always(dataclasses.replace(PASSED, components=(lost,))))
    assert report.soundness is Soundness.UNDECIDED
    assert report.problems == ("the reference was not measured: growth: no inputs",)


@pytest.mark.parametrize("outcome", Outcome)
async def test_each_outcome_of_a_verifier_that_passes_all(outcome: Outcome) -> None:
    report = await check_task(TASK, always(dataclasses.replace(PASSED, outcome=outcome)))
    undecided = outcome in {Outcome.INFRA_FAULT, Outcome.CANCELLED}
    assert report.soundness is (Soundness.UNDECIDED if undecided else Soundness.UNSOUND)
    assert report.problems


@pytest.mark.parametrize(
    ("error", "soundness", "problems"),
    [
        # What keeps everything from being judged is said once, not for each submission.
        (GraderError("the tests are empty."), Soundness.UNSOUND, 1),
        (SandboxDied("killed."), Soundness.UNDECIDED, 1),
    ],
)
async def test_an_error_of_the_verifier_is_a_report(
    error: Exception, soundness: Soundness, problems: int
) -> None:
    async def verify(_task: Task, _submission: Submission) -> Verdict:
        raise error

    report = await check_task(TASK, verify)
    assert report.soundness is soundness
    assert len(report.problems) == problems
    assert str(error) in report.problems[0]


async def test_no_more_than_the_allowed_checks_run_at_once() -> None:
    running, most = 0, 0

    async def verify(_task: Task, _submission: Submission) -> Verdict:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return PASSED

    tasks = load_tasks("repair?count=20")
    told: list[TaskReport] = []
    reports = await check_tasks(tasks, verify, concurrency=3, told=told.append)
    assert set(told) == set(reports)
    assert [report.task_id for report in reports] == [task.id for task in tasks]
    assert most == 3
    with pytest.raises(UsageError, match="concurrency is 0"):
        await check_tasks(tasks, verify, concurrency=0)


async def test_a_task_that_pays_for_a_part_pays_for_no_answer_that_took_no_work(
    verify: Verify,
) -> None:
    cases = [CallCase(id=f"h{n}", target="sign", args=(n - 3,), expected=n > 3) for n in range(5)]
    task = dataclasses.replace(
        TASK,
        starter="",
        reference="def sign(n):\n    return n > 0\n",
        hidden=CallSuite(cases=tuple(cases)),
        weights=Weights(partial=True),
    )
    report = await check_task(task, verify)
    assert report.soundness is Soundness.UNSOUND
    assert report.problems[-1] == (
        "the constant answer False earns a reward of 0.8. "
        "Write baseline = 0.8 in [tiltyard.verify]."
    )
    report = await check_task(dataclasses.replace(task, baseline=0.8), verify)
    assert report.soundness is Soundness.SOUND


async def test_a_reference_that_is_not_paid_in_full_is_named() -> None:
    weights = Weights(tests=0.0, components={"style": ComponentWeight(weight=1.0)})
    poor = Component(name="style", raw=3, normalised=0.5)
    verdict = dataclasses.replace(PASSED, components=(poor,))
    report = await check_task(dataclasses.replace(TASK, weights=weights), always(verdict))
    assert report.problems[0] == (
        "the reference earns only 0.5: all 1 checks passed, style 0.5 of 1."
    )
