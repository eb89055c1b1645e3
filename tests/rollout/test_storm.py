"""Two hundred rollouts at once while processes of their sandboxes are killed at random.

Every one ends in one outcome, none is paid for a fault, and nothing of ours is left on the machine.
"""

import asyncio
import os
import random
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from sample_policies import Replies, whole_module
from tiltyard.core.task import Split
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Outcome
from tiltyard.rollout.episode import Setting
from tiltyard.rollout.runs import attempts, run_attempts, verify_each
from tiltyard.sandbox.native.provider import usable_hierarchies
from tiltyard.store import RunReader, RunStore
from tiltyard.tasks.repair import make_task
from tiltyard.wiring import open_yard

ROLLOUTS = 200
KILL_EVERY_S = 0.03


def descendants(root: int) -> Iterator[int]:
    """The pids below a process, by the kernel's own lists."""
    try:
        tasks = list(Path(f"/proc/{root}/task").iterdir())
        lists = [(task / "children").read_text() for task in tasks]
    except OSError:
        return
    for pid in map(int, " ".join(lists).split()):
        yield pid
        yield from descendants(pid)


def launchers() -> list[int]:
    """Our launcher processes: children of this process of that name."""
    mine = [int(pid) for pid in _children(os.getpid())]
    return [pid for pid in mine if _name(pid).startswith("tiltyard-launch")]


def _children(pid: int) -> list[str]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return " ".join((task / "children").read_text() for task in tasks).split()


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def left_over() -> dict[str, set[str]]:
    """All of ours that could be left on the machine."""
    mine = f"tiltyard-{os.getpid()}-*"
    cgroups = {str(path) for tree in usable_hierarchies() for path in tree.base.glob(mine)}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": {f"{pid} {_name(pid)}" for pid in descendants(os.getpid())},
        "cgroups": cgroups,
        "mounts": {line for line in mounts if "tiltyard" in line},
        # With our number: other programs on the machine make theirs meanwhile.
        "directories": {
            str(path) for path in Path(tempfile.gettempdir()).glob(f"tiltyard*{os.getpid()}*")
        },
        "descriptors": {str(len(list(Path("/proc/self/fd").iterdir())))},
    }


@pytest.mark.sandbox
@pytest.mark.slow
async def test_a_storm_of_kills_loses_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    before = left_over()
    chance = random.Random(5)  # noqa: S311 - which processes die
    tasks = {made.id: made for made in (make_task(n, split=Split.TRAIN) for n in range(ROLLOUTS))}
    # The first turn fails every example, so that the second, right one is always made.
    policy = Replies(
        lambda prompt: tasks[prompt.task_id].reference if prompt.earlier else "raise ValueError"
    )
    kills = 0

    async def kill_at_random() -> None:
        nonlocal kills
        while True:
            await asyncio.sleep(KILL_EVERY_S)
            victims = [pid for launcher in launchers() for pid in descendants(launcher)]
            if victims:
                try:
                    os.kill(chance.choice(victims), signal.SIGKILL)
                    kills += 1
                except ProcessLookupError:
                    continue

    done: list[Trajectory] = []
    async with RunStore.create(tmp_path / "run") as store:

        async def record(trajectory: Trajectory) -> None:
            await store.append(trajectory)
            done.append(trajectory)

        async with open_yard(sandboxes=ROLLOUTS, warm=4, verifications=4) as yard:
            setting = Setting(
                policy=policy,
                read_answer=whole_module,
                pool=yard.pool,
                spec=yard.spec,
                verify=verify_each(yard.verifier.verify),
                turns_max=2,
            )
            async with asyncio.TaskGroup() as group:
                storm = group.create_task(kill_at_random())
                await run_attempts(
                    attempts(tasks.values(), samples=1, seed=0),
                    setting,
                    concurrency=ROLLOUTS,
                    record=record,
                )
                storm.cancel()

    counts = Counter(trajectory.verdict.outcome for trajectory in done)
    assert len({trajectory.id for trajectory in done}) == ROLLOUTS
    assert kills > 10
    assert set(counts) <= {Outcome.GRADED, Outcome.INFRA_FAULT}
    for trajectory in done:
        # Every answer was right: what a kill spoiled has no reward, never a 0.
        graded = trajectory.verdict.outcome is Outcome.GRADED
        assert trajectory.reward.value == (1.0 if graded else None), trajectory.verdict
    with RunReader(tmp_path / "run") as reader:
        assert sum(1 for _ in reader.iter_rows()) == ROLLOUTS
    assert left_over() == before
