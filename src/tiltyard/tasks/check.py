"""Whether a task can be trusted to teach: its tests accept the reference and nothing cheaper.

A task whose reference fails punishes right answers, and one whose starter passes pays for none.
Both are found by running the verifier on submissions whose worth is known beforehand. The
verifier is a parameter, so this room knows no sandbox.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, assert_never

from tiltyard.core.errors import GraderError, SandboxError, TaskError
from tiltyard.core.ids import TaskId
from tiltyard.core.task import Submission, Task
from tiltyard.core.verdict import CheckStatus, Outcome, Verdict
from tiltyard.tasks.concurrently import for_each

Verify: TypeAlias = Callable[[Task, Submission], Awaitable[Verdict]]

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


Told: TypeAlias = Callable[[TaskReport], None]


def _untold(_report: TaskReport) -> None:
    """Nobody wants to know before the end."""


async def check_task(task: Task, verify: Verify) -> TaskReport:
    """Verifies the reference, the starter and an empty module of one task.

    A bad task is a report, never an exception; so is a fault of the verifier or of a sandbox.
    """
    found = [
        finding
        for candidate in _candidates(task)
        if (finding := await _finding(task, candidate, verify)) is not None
    ]
    if any(finding.of_task for finding in found):
        soundness = Soundness.UNSOUND
    else:
        soundness = Soundness.UNDECIDED if found else Soundness.SOUND
    return TaskReport(
        task_id=task.id,
        soundness=soundness,
        # What cannot be graded at all is found with each of the submissions.
        problems=tuple(dict.fromkeys(finding.problem for finding in found)),
    )


async def check_tasks(
    tasks: Iterable[Task], verify: Verify, *, concurrency: int, told: Told = _untold
) -> tuple[TaskReport, ...]:
    """Checks every task, at most `concurrency` at a time; reports come in the tasks' order.

    `told` gets each report when there is one, for a progress display.
    Raises UsageError when `concurrency` is not positive.
    """
    reports: dict[int, TaskReport] = {}

    async def check(place: int, task: Task) -> None:
        reports[place] = await check_task(task, verify)
        told(reports[place])

    await for_each(tasks, check, concurrency=concurrency)
    return tuple(reports[place] for place in range(len(reports)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A submission whose worth is known."""

    name: str
    source: str
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    problem: str
    of_task: bool
    """False: the infrastructure's, so nothing is known about the task."""


def _candidates(task: Task) -> tuple[_Candidate, ...]:
    reference = _Candidate(name="the reference", source=task.reference, right=True)
    empty = _Candidate(name="an empty module", source="", right=False)
    starter = _Candidate(name="the starter", source=task.starter, right=False)
    return (reference, starter, empty) if task.starter else (reference, empty)


async def _finding(task: Task, candidate: _Candidate, verify: Verify) -> _Finding | None:
    try:
        content = candidate.source.encode()
        verdict = await verify(task, Submission(files={f"{task.module}.py": content}))
    except UnicodeEncodeError:
        return _Finding(problem=f"{candidate.name} is no text that can be stored.", of_task=True)
    except (GraderError, TaskError) as error:
        return _Finding(problem=f"nothing can be graded: {error}", of_task=True)
    except SandboxError as error:
        return _Finding(problem=f"{candidate.name} met a fault: {error}", of_task=False)
    return _judged(candidate, verdict)


def _judged(candidate: _Candidate, verdict: Verdict) -> _Finding | None:
    problem = None
    match verdict.outcome:
        case Outcome.INFRA_FAULT | Outcome.CANCELLED:
            return _Finding(
                problem=f"{candidate.name} was not judged: {verdict.outcome}, {verdict.detail}",
                of_task=False,
            )
        case Outcome.GRADER_FAULT:
            problem = f"nothing can be graded: {verdict.detail}"
        case Outcome.AGENT_FAULT if candidate.right:
            problem = f"{candidate.name} was refused: {verdict.detail}"
        case Outcome.AGENT_FAULT:
            pass
        case Outcome.GRADED if candidate.right and not verdict.all_passed:
            problem = f"{candidate.name} fails {_failed(verdict)}."
        case Outcome.GRADED if candidate.right and verdict.tamper:
            problem = f"{candidate.name} looks like tampering: {', '.join(verdict.tamper)}"
        case Outcome.GRADED if not candidate.right and verdict.all_passed:
            problem = f"{candidate.name} passes every check."
        case Outcome.GRADED:
            pass
        case _:
            assert_never(verdict.outcome)
    return _Finding(problem=problem, of_task=True) if problem else None


def _failed(verdict: Verdict) -> str:
    """The first failed checks with their status."""
    failed = [check for check in verdict.checks if check.status is not CheckStatus.PASSED]
    if not failed:
        return "because no check was run"
    named = ", ".join(f"{check.id} ({check.status})" for check in failed[:_FAILED_NAMED_MAX])
    more = len(failed) - _FAILED_NAMED_MAX
    return f"{named} and {more} more" if more > 0 else named
