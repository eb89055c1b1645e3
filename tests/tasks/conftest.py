"""A grader of the tests' own, so that the pack's expected values are checked by other code.

It runs sources in this process with plain `exec`, which is honest for the pack's own text and
for nothing else; what real submissions meet is the verify room.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tiltyard.core.task import CallCase, Submission, Task
from tiltyard.core.verdict import Check, CheckStatus, Outcome, Verdict

Grade = Callable[[str, CallCase], bool]


def passes(source: str, case: CallCase) -> bool:
    """Whether `source` gets one case right."""
    namespace: dict[str, Any] = {"__name__": "solution"}
    exec(compile(source, "<solution>", "exec"), namespace)  # noqa: S102 - the pack's own text
    args = copy.deepcopy(case.args)
    try:
        got = namespace[case.target](*args)
        if case.then:
            got = [copy.deepcopy(getattr(got, call.name)(*call.args)) for call in case.then]
    except Exception as error:  # noqa: BLE001 - a faulty text may raise anything
        return type(error).__name__ == case.raises
    if case.raises is not None or (case.arguments_kept and args != case.args):
        return False
    return type(got) is type(case.expected) and repr(got) == repr(case.expected)


@pytest.fixture(scope="session")
def grade() -> Grade:
    """Runs one case against a source."""
    return passes


async def verified(task: Task, submission: Submission) -> Verdict:
    """A verdict as the verify room gives it, on the hidden cases of a task with plain calls."""
    source = submission.files[f"{task.module}.py"].decode()
    checks = []
    for case in task.hidden.cases:  # type: ignore[union-attr]
        ok = passes(source, case)
        status = CheckStatus.PASSED if ok else CheckStatus.WRONG_ANSWER
        checks.append(Check(id=case.id, status=status))
    return Verdict(outcome=Outcome.GRADED, checks=tuple(checks), baseline=task.baseline)


@pytest.fixture(scope="session")
def verify() -> Callable[[Task, Submission], Any]:
    """An honest verifier without a sandbox."""
    return verified
