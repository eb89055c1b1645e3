"""Verifying answers, alone and at the end of whole rollouts, beside pytest in the usual places.

The answers are references and starters of repair tasks in turn, so half of them are right. What is
measured is only counted when the verdict was the right one.
"""

import itertools
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from board import Board
from peers import bwrap_argv, bwrap_python, run_program
from race import PeerFailed, System, race
from sandboxes import SPEC, at_rest
from tiltyard.core.errors import SandboxError
from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.task import CallSuite, PytestSuite, Split, Submission, Task
from tiltyard.core.trajectory import Answer, PolicyReply, Prompt
from tiltyard.core.verdict import Outcome, Reward
from tiltyard.rollout.episode import Attempt, Progress, Setting, run_episode
from tiltyard.rollout.runs import verify_each
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.tasks.repair import make_task
from tiltyard.verify.reward import reward_of
from tiltyard.verify.verifier import Verifier

TASKS = 24
PYTEST_TASKS = 2
CONCURRENCY = 8
SLICE_S = 1.0
"""Longer than usual: eight pytest processes at once take a second, and a slice waits for all."""
TEST_FILE = "test_hidden.py"

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


def pytest_source(suite: CallSuite) -> str:
    """The cases as an ordinary test file."""
    return _TESTS.format(
        cases=[
            (
                *(case.target, case.args, [(call.name, call.args) for call in case.then]),
                *(case.expected, case.raises),
            )
            for case in suite.cases
        ]
    )


def with_pytest(task: Task) -> Task:
    """The same task with its hidden cases as a pytest file."""
    assert isinstance(task.hidden, CallSuite)  # noqa: S101 - repair tasks have no other
    suite = PytestSuite(files={TEST_FILE: pytest_source(task.hidden)})
    return replace(task, id=TaskId(f"{task.id}-pytest"), hidden=suite)


async def one_by_one(board: Board) -> None:
    """One verification at a time."""
    tasks = repair_tasks(TASKS)
    by_pytest = [with_pytest(task) for task in tasks[:PYTEST_TASKS]]
    async with NativeProvider() as provider, _verifier(provider) as verifier:
        split_pytest = _verifications(verifier, by_pytest)
        for _ in by_pytest * 2:  # which tests a task has is found once for it, with its reference
            await split_pytest()
        racing = [
            System(name="split-calls", once=_verifications(verifier, tasks)),
            System(name="split-pytest", once=split_pytest),
            *_pytest_peers(board, "verification", tasks),
        ]
        await race(board, "verification", racing, paced=True)


async def under_load(board: Board) -> None:
    """Whole rollouts, eight at once; the peers do nothing but verify."""
    tasks = repair_tasks(TASKS)
    async with (
        NativeProvider() as provider,
        Pool(provider) as pool,
        _verifier(provider) as verifier,
    ):
        racing = [
            System(name="one-turn", once=_rollouts(pool, verifier, tasks, turns_max=1)),
            System(
                name="two-turns",
                once=_rollouts(pool, verifier, tasks, turns_max=2),
                settle=lambda: at_rest(pool),
            ),
            *_pytest_peers(board, "rollouts", tasks),
        ]
        await race(board, "rollouts", racing, concurrency=CONCURRENCY, slice_s=SLICE_S)


@asynccontextmanager
async def _verifier(provider: NativeProvider) -> AsyncIterator[Verifier]:
    cells_max = len(os.sched_getaffinity(0)) + 1
    async with Verifier(
        provider, interpreter=provider.interpreter, spec=SPEC, cells_max=cells_max
    ) as verifier:
        yield verifier


def _verifications(verifier: Verifier, tasks: list[Task]) -> Callable[[], Awaitable[None]]:
    answers = trials(tasks)

    async def once() -> None:
        trial = next(answers)
        verdict = await verifier.verify(trial.task, trial.submission)
        _check(trial, verdict.outcome, reward_of(verdict), verdict.detail)

    return once


class ScriptedPolicy:
    """Answers with the starter until its last turn, and then with what the script says."""

    name = "scripted"

    def __init__(self, turns_max: int) -> None:
        self._turns_max = turns_max
        self.script: dict[tuple[TaskId, int], str] = {}

    async def respond(self, prompt: Prompt) -> PolicyReply:
        last = len(prompt.earlier) + 1 == self._turns_max
        text = self.script[prompt.task_id, prompt.sample] if last else prompt.code
        return PolicyReply(text=text, policy_version="scripted-1")


def _rollouts(
    pool: Pool, verifier: Verifier, tasks: list[Task], *, turns_max: int
) -> Callable[[], Awaitable[None]]:
    policy = ScriptedPolicy(turns_max)
    for task in tasks:
        policy.script |= {(task.id, 0): task.starter, (task.id, 1): task.reference}
    setting = Setting(
        policy=policy,
        read_answer=lambda _code, reply: Answer(code=reply),
        pool=pool,
        spec=SPEC,
        verify=verify_each(verifier.verify),
        turns_max=turns_max,
    )
    answers, numbers = trials(tasks), itertools.count()

    async def once() -> None:
        trial, number = next(answers), next(numbers)
        attempt = Attempt(
            id=RolloutId(f"bench.{number}"),
            group=GroupId(trial.task.id),
            task=trial.task,
            sample=int(trial.right),
            seed=number,
        )
        trajectory = await run_episode(attempt, setting, Progress())
        verdict = trajectory.verdict
        _check(trial, verdict.outcome, trajectory.reward, verdict.detail)

    return once


def _check(trial: Trial, outcome: Outcome, reward: Reward, detail: str) -> None:
    if outcome is not Outcome.GRADED or reward.value != float(trial.right):
        raise SandboxError(f"{trial.task.id}: {outcome}, {reward.why} {detail}")


def _pytest_peers(board: Board, bench: str, tasks: list[Task]) -> Iterator[System]:
    python = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEST_FILE]
    plain = _pytest_runs(tasks, lambda _: python)
    yield System(name="pytest-subprocess", once=plain, peer=True)
    try:
        start, shown = bwrap_argv(), bwrap_python()
    except PeerFailed as error:
        board.leave_out(f"{bench}/pytest-bwrap", str(error))
        return

    def wrapped(directory: Path) -> list[str]:
        place = ["--bind", os.fspath(directory), "/workspace", "--chdir", "/workspace"]
        return [*start, *shown, *place, *python]

    yield System(name="pytest-bwrap", once=_pytest_runs(tasks, wrapped), peer=True)


def _pytest_runs(
    tasks: list[Task], argv_for: Callable[[Path], list[str]]
) -> Callable[[], Awaitable[None]]:
    """Each verification in a directory of its own, with the tests beside the answer."""
    answers = trials(tasks)
    # Split mode's testers do without installed plugins as well.
    env = {"PATH": os.defpath, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

    async def once() -> None:
        trial = next(answers)
        assert isinstance(trial.task.hidden, CallSuite)  # noqa: S101 - as in `with_pytest`
        with tempfile.TemporaryDirectory(prefix="tiltyard-bench-") as name:
            directory = Path(name)
            (directory / "solution.py").write_text(trial.source)
            (directory / TEST_FILE).write_text(pytest_source(trial.task.hidden))
            expected_code = 0 if trial.right else 1
            argv = argv_for(directory)
            await run_program(argv, expected_code=expected_code, cwd=directory, env=env)

    return once
