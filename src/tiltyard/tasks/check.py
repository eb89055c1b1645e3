"""Whether a task can be trusted to teach: its tests accept the reference and nothing cheaper.

A task whose reference fails punishes right answers, and one whose starter, or any constant, passes
pays for none. Both are found by running the verifier on submissions whose worth is known
beforehand. The verifier is a parameter, so this room knows no sandbox.
"""

import math
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never

from tiltyard.core.errors import GraderError, SandboxError, TaskError
from tiltyard.core.ids import TaskId
from tiltyard.core.task import Submission, Task
from tiltyard.core.verdict import CheckStatus, Gap, Outcome, Verdict
from tiltyard.core.weights import DEFAULT
from tiltyard.tasks.cheap_answers import cheap_answers
from tiltyard.tasks.concurrently import for_each
from tiltyard.verify.reward import reward_of
from tiltyard.verify.submission import reference_of

Verify: TypeAlias = Callable[[Task, Submission], Awaitable[Verdict]]
VerifyReference: TypeAlias = Callable[[Task], Awaitable[Verdict]]

_FAILED_NAMED_MAX = 5


class Soundness(StrEnum):
    """What a check of a task found."""

    SOUND = "sound"
    UNSOUND = "unsound"
    UNDECIDED = "undecided"
    """A fault of the infrastructure kept the check from an answer; check again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskReport:
    """What a check of one task found, and why."""

    task_id: TaskId
    soundness: Soundness
    problems: tuple[str, ...] = ()
    """One sentence each; empty when the task is sound."""
    baseline: float = 0.0
    """The best score of a constant answer: where partial credit starts (`Verdict.baseline`)."""
    baseline_of: str = ""
    """Which answer that was; empty when none scored."""


Told: TypeAlias = Callable[[TaskReport], None]


def _untold(_report: TaskReport) -> None:
    """Nobody wants to know before the end."""


async def check_task(
    task: Task, verify: Verify, *, verify_reference: VerifyReference | None = None
) -> TaskReport:
    """Verifies the reference, the starter, an empty answer and constant ones of one task.

    `verify_reference` judges the reference where it is more than files; None takes its files. A bad
    task is a report, never an exception; so is a fault of the verifier or of a sandbox. Where
    nothing can be judged, the first answer tells, and the others are not tried.
    """
    problems: list[str] = []
    baseline, baseline_of = 0.0, ""

    async def reference() -> Verdict:
        if verify_reference is not None:
            return await verify_reference(task)
        return await verify(task, reference_of(task))

    def report(soundness: Soundness, *more: str) -> TaskReport:
        return TaskReport(
            task_id=task.id,
            soundness=soundness,
            problems=(*problems, *more),
            baseline=baseline,
            baseline_of=baseline_of,
        )

    found = await _finding("the reference", reference(), task, right=True)
    if found.ends is not None:
        return report(found.ends, found.problem)
    if found.problem:
        problems.append(found.problem)
    for answer in cheap_answers(task):
        found = await _finding(answer.name, verify(task, answer.submission), task, right=False)
        if found.ends is not None:
            return report(Soundness.UNSOUND if problems else found.ends, found.problem)
        if found.problem:
            problems.append(found.problem)
        if answer.constant and found.score > baseline:
            baseline, baseline_of = found.score, answer.name
    return report(Soundness.UNSOUND if problems else Soundness.SOUND)


async def check_tasks(
    tasks: Iterable[Task],
    verify: Verify,
    *,
    concurrency: int,
    told: Told = _untold,
    verify_reference: VerifyReference | None = None,
) -> tuple[TaskReport, ...]:
    """Checks every task, at most `concurrency` at a time; reports come in the tasks' order.

    `told` gets each report when there is one, for a progress display.
    Raises UsageError when `concurrency` is not positive.
    """
    reports: dict[int, TaskReport] = {}

    async def check(place: int, task: Task) -> None:
        reports[place] = await check_task(task, verify, verify_reference=verify_reference)
        told(reports[place])

    await for_each(tasks, check, concurrency=concurrency)
    return tuple(reports[place] for place in range(len(reports)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    problem: str = ""
    """Empty when the answer came out as it must."""
    score: float = 0.0
    ends: Soundness | None = None
    """What is thereby known of the task, where the answer could not be judged at all."""


async def _finding(name: str, judging: Awaitable[Verdict], task: Task, *, right: bool) -> _Finding:
    try:
        verdict = await judging
    except (GraderError, TaskError) as error:
        return _Finding(problem=f"nothing can be graded: {error}", ends=Soundness.UNSOUND)
    except SandboxError as error:
        return _Finding(problem=f"{name} met a fault: {error}", ends=Soundness.UNDECIDED)
    problem = ""
    match verdict.outcome:
        case Outcome.INFRA_FAULT | Outcome.CANCELLED:
            return _Finding(
                problem=f"{name} was not judged: {verdict.outcome}, {verdict.detail}",
                ends=Soundness.UNDECIDED,
            )
        case Outcome.GRADER_FAULT:
            return _Finding(
                problem=f"nothing can be graded: {verdict.detail}", ends=Soundness.UNSOUND
            )
        case Outcome.AGENT_FAULT if right:
            problem = f"{name} was refused: {verdict.detail}"
        case Outcome.AGENT_FAULT:
            pass
        case Outcome.GRADED if right and (lost := _not_measured(verdict)):
            return _Finding(problem=f"{name} was not measured: {lost}", ends=Soundness.UNDECIDED)
        case Outcome.GRADED if right:
            problem = _short_of_full(name, verdict, task)
        case Outcome.GRADED:
            problem = _paid(name, verdict, task)
        case _:
            assert_never(verdict.outcome)
    return _Finding(problem=problem, score=verdict.score)


def _not_measured(verdict: Verdict) -> str:
    """The measures that were asked for and lost, and the first one's reason; empty for none."""
    lost = [each for each in verdict.components if each.gap is Gap.INFRA]
    if not lost:
        return ""
    names = ", ".join(each.name for each in lost)
    return f"{names}: {'; '.join(each.message for each in lost[0].evidence)}"


def _short_of_full(name: str, verdict: Verdict, task: Task) -> str:
    """What keeps a right answer from its whole reward; empty when nothing does."""
    if not verdict.all_passed:
        return f"{name} fails {_failed(verdict)}."
    if verdict.tamper:
        return f"{name} looks like tampering: {', '.join(verdict.tamper)}"
    reward = reward_of(verdict, task.weights or DEFAULT)
    if reward.value is None:
        return f"{name} earns no reward: {reward.why}."
    return f"{name} earns only {reward.value:g}: {reward.why}." if reward.value < 1 else ""


def _paid(name: str, verdict: Verdict, task: Task) -> str:
    """What an answer gets that took no work; empty for nothing."""
    if verdict.all_passed:
        return f"{name} passes every check."
    weights = task.weights or DEFAULT
    earned = reward_of(verdict, weights).value
    if not earned:
        return ""
    # A script may pay for a part, and so may the task's own weights.
    problem = f"{name} earns a reward of {earned:g}."
    if weights.partial and verdict.score > task.baseline:
        above = math.ceil(verdict.score * 10_000) / 10_000
        problem += f" Write baseline = {above:g} in [tiltyard.verify]."
    return problem


def _failed(verdict: Verdict) -> str:
    """The first failed checks with their status."""
    failed = [check for check in verdict.checks if check.status is not CheckStatus.PASSED]
    if not failed:
        return "because no check was run"
    named = ", ".join(f"{check.id} ({check.status})" for check in failed[:_FAILED_NAMED_MAX])
    more = len(failed) - _FAILED_NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
