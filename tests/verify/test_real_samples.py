"""Samples of a real model: split mode says of each what a plain run of the same tests says.

The samples lie beside the repository. A plain run that runs out of time says nothing.
"""

import asyncio
import json
import lzma
import re
from pathlib import Path
from typing import Any

import pytest

from tiltyard.core.execution import Reason
from tiltyard.core.task import PytestSuite, Submission, Task
from tiltyard.core.verdict import Outcome
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.verifier import Verifier
from verify.tasks import SPEC
from verify.test_human_eval import problems

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "data" / "codet"
EACH = 2
"""Different samples of each problem."""
EVERY = 8
"""Of the problems, in `make test`."""
ENDS = re.compile(r"\n(?=def |class |if |print|assert|#|@)")
PLAIN_S = 20.0


def samples() -> list[Any]:
    """Each row: a prompt and what the model went on with."""
    with lzma.open(SAMPLES / "code_solution.jsonl.xz") as file:
        return [json.loads(line) for line in file]


def sources(row: Any) -> list[str]:
    """The function of a sample, without what the model wrote after it."""
    bodies = dict.fromkeys(ENDS.split(sample, maxsplit=1)[0] for sample in row["samples"])
    return [f"{row['prompt']}{body}\n" for body in list(bodies)[:EACH]]


def name_of(source: str) -> str:
    return re.findall(r"^def (\w+)\(", source, re.MULTILINE)[-1]


async def plainly(provider: NativeProvider, task: Task, source: str) -> bool | None:
    """What one process says that runs solution and tests; None when its time is over."""
    assert isinstance(task.hidden, PytestSuite)
    tests, _, _ = task.hidden.files["test_check.py"].partition("\n\nimport solution\n")
    test = tests.removeprefix(task.reference)
    name = name_of(task.starter)
    sandbox = await provider.create(SPEC)
    try:
        await sandbox.write("/workspace/plain.py", f"{source}{test}\ncheck({name})\n")
        command = [provider.interpreter.python, "plain.py"]
        result = await sandbox.run(command, timeout_s=PLAIN_S)
    finally:
        await sandbox.close()
    if result.reason is Reason.WALL_TIMEOUT:
        return None
    return result.reason is Reason.EXIT and result.exit_code == 0


@pytest.mark.parametrize(
    "each", [pytest.param(1, marks=pytest.mark.long), EVERY], ids=["all of them", "some of them"]
)
@pytest.mark.skipif(not SAMPLES.exists(), reason="the samples are not beside the repository")
@pytest.mark.timeout(900)
async def test_verdicts_agree_with_a_plain_run(
    provider: NativeProvider, verifier: Verifier, each: int
) -> None:
    tasks = {name_of(task.starter): task for task in problems()}
    agreed: list[bool] = []
    odd: list[tuple[str, bool, str]] = []

    async def judge(task: Task, source: str) -> None:
        async with places:
            plain = await plainly(provider, task, source)
            submission = Submission(files={"solution.py": source.encode("utf-8", "replace")})
            verdict = await verifier.verify(task, submission)
        assert verdict.outcome is Outcome.GRADED, (task.id, verdict.detail)
        if plain is None or plain == verdict.all_passed:
            agreed.append(verdict.all_passed)
        else:
            odd.append((task.id, plain, source))

    places = asyncio.Semaphore(2)
    async with asyncio.TaskGroup() as group:
        for row in samples()[::each]:
            for source in sources(row):
                group.create_task(judge(tasks[name_of(row["prompt"])], source))
    assert not odd
    assert len(agreed) >= 100 / each
    assert 5 / each < sum(agreed) < len(agreed), "both kinds of samples are there"
