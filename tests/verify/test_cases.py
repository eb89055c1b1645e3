"""The cases kept beside the repository: no cheat is accepted, every honest answer is."""

from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from chosen import shared_cheats
from tiltyard.core.task import CallCase, CallSuite, PytestSuite, Submission, Task
from tiltyard.core.verdict import Outcome
from tiltyard.verify.reward import reward_of
from tiltyard.verify.verifier import Verifier
from verify.tasks import task

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

CALLS = CallSuite(
    cases=(
        CallCase(id="1", target="add", args=(5, 7), expected=12),
        CallCase(id="2", target="add", args=(-3, 10), expected=7),
        CallCase(id="3", target="add", args=(123, 877), expected=1000),
        CallCase(id="4", target="srt", args=([3, 1, 2],), expected=[1, 2, 3]),
    )
)


@pytest.fixture(params=[pytest.param("calls", marks=pytest.mark.long), "pytest"])
def judged(request: pytest.FixtureRequest, shared_cases: Path) -> Task:
    """The cases' own task, with their tests as calls and as they are."""
    if request.param == "calls":
        return task(CALLS, time_limit_s=1.0)
    names = ("test_hidden.py", "checker.py")
    files = {name: (shared_cases / "cheats" / name).read_text() for name in names}
    reference = (shared_cases / "cheats" / "reference.py").read_text()
    return task(PytestSuite(files=files), reference=reference, time_limit_s=1.0)


@pytest.mark.parametrize("case", shared_cheats(), ids=itemgetter("id"))
async def test_a_shared_case_comes_out_as_it_must(
    verifier: Verifier, judged: Task, case: Mapping[str, Any]
) -> None:
    submission = Submission(
        files={path: text.encode() for path, text in case["files"].items()}, links=case["links"]
    )
    verdict = await verifier.verify(judged, submission)
    assert verdict.outcome in {Outcome.GRADED, Outcome.AGENT_FAULT}, verdict.detail
    assert reward_of(verdict).value == (1.0 if case["expect"] == "accept" else 0.0), verdict
    if case["kind"] == "files" and case["files"] and isinstance(judged.hidden, PytestSuite):
        assert verdict.tamper
