"""Tasks and submissions for the measures, and what their verdicts say."""

from tiltyard.core.checks import Checks
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallCase, CallSuite, Split, Submission, Task
from tiltyard.core.values import Value
from tiltyard.core.verdict import CheckStatus, Component, Verdict
from tiltyard.verify.verifier import Verifier


def measured_task(
    reference: str, checks: Checks, *, cases: tuple[tuple[tuple[Value, ...], Value], ...]
) -> Task:
    """A task of a function `f`, with the arguments and the answers of its hidden cases."""
    return Task(
        id=TaskId("measured"),
        family="measured",
        split=Split.TRAIN,
        revision="1",
        instruction="",
        starter="",
        time_limit_s=30.0,
        reference=reference,
        visible=CallSuite(cases=()),
        hidden=CallSuite(
            cases=tuple(
                CallCase(id=str(at), target="f", args=args, expected=expected)
                for at, (args, expected) in enumerate(cases)
            )
        ),
        checks=checks,
    )


async def verdict_on(verifier: Verifier, task: Task, source: str) -> Verdict:
    return await verifier.verify(task, Submission(files={"solution.py": source.encode()}))


def components(verdict: Verdict) -> dict[str, Component]:
    """By name. The submission must have passed every check."""
    assert [each for each in verdict.checks if each.status is not CheckStatus.PASSED] == []
    return {component.name: component for component in verdict.components}
