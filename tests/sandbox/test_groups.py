"""What is counted for each execution alone, whatever runs beside it, and who belongs to it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from sandbox.processes import supervisors
from sandbox.successors import python
from tiltyard.core.execution import MIB, Reason, SandboxSpec
from tiltyard.sandbox.native import cgroups
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies
from tiltyard.sandbox.supervised import Sandbox

COUNTED = any(
    tree.version == 1 and "memory" in tree.controllers for tree in usable_hierarchies()
) and any(tree.version == 1 and "cpuacct" in tree.controllers for tree in usable_hierarchies())

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(not COUNTED, reason="no v1 memory and cpuacct cgroups to write to"),
]

BUSY = "import time; end = time.process_time() + 0.4\nwhile time.process_time() < end: pass"
HUNGRY = f"x = bytearray({48 * MIB}); print(len(x))"
ESCAPED = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("escaped", "w").write(str(os.getpid()))
        while True:
            time.sleep(1)
    os._exit(0)
os.wait()
while True:
    time.sleep(1)
"""


def groups(sandbox: Sandbox) -> list[Path]:
    """Of all its executions."""
    slot = sandbox._hold._slot  # type: ignore[attr-defined] # which cgroups are its own, nobody else tells
    return [group for place in slot.plan.directories for group in Path(place).glob("e*/")]


@pytest.mark.slow
async def test_each_is_charged_with_its_own(sandbox: Sandbox) -> None:
    async with asyncio.TaskGroup() as group:
        busy, hungry, idle = (
            group.create_task(python(sandbox, source)) for source in (BUSY, HUNGRY, "pass")
        )
    assert busy.result().cpu_s >= 0.4
    assert idle.result().cpu_s < 0.4
    assert hungry.result().memory_peak_bytes >= 48 * MIB
    assert busy.result().memory_peak_bytes < 48 * MIB
    assert idle.result().memory_peak_bytes < 48 * MIB


async def test_only_the_one_that_ran_out_of_memory_says_so(sandbox: Sandbox) -> None:
    """Its neighbour fails at the same time, for another reason."""
    async with asyncio.TaskGroup() as group:
        greedy = group.create_task(
            sandbox.run(["python3", "-c", f"bytearray({512 * MIB})"], timeout_s=60)
        )
        waiting = group.create_task(
            sandbox.run(["sh", "-c", "while [ ! -e go ]; do sleep 0.01; done; exit 3"])
        )
        assert (await greedy).reason is Reason.OOM
        assert sandbox.usage().oom_kills == 1
        await sandbox.write("go", "")
    assert (waiting.result().reason, waiting.result().exit_code) == (Reason.EXIT, 3)


async def test_an_earlier_kill_is_not_blamed_for_a_sandbox_that_is_lost(sandbox: Sandbox) -> None:
    """The last count of a sandbox's kills is of all its groups together."""
    greedy = await sandbox.run(["python3", "-c", f"bytearray({512 * MIB})"])
    assert greedy.reason is Reason.OOM
    process = await sandbox.spawn(["sleep", "60"])
    os.kill(supervisors()[0], signal.SIGKILL)
    assert (await process.wait()).reason is Reason.SANDBOX_DIED
    assert sandbox.usage().oom_kills == 1


async def test_a_timeout_takes_whom_it_started_and_nobody_else(sandbox: Sandbox) -> None:
    """Also a process that has left its parent and its session, while another program runs."""
    async with asyncio.TaskGroup() as group:
        beside = group.create_task(sandbox.run(["sleep", "60"], timeout_s=50))
        done = await sandbox.run(["python3", "-I", "-S", "-c", ESCAPED], timeout_s=1.5)
        assert done.reason is Reason.WALL_TIMEOUT
        pid = (await sandbox.read("escaped")).decode()
        alive = await sandbox.run(["sh", "-c", f"kill -0 {pid}"])
        assert alive.exit_code != 0, "it is gone"
        assert not beside.done()
        await sandbox.kill()


async def test_they_are_used_again_once_they_are_empty(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    sandbox = await provider.create(spec)
    for _ in range(5):
        assert (await sandbox.run(["true"])).ok
    count = len(groups(sandbox))
    assert count == len({group.parent for group in groups(sandbox)}), "one in each tree"
    await sandbox.run(["sh", "-c", "sleep 60 > /dev/null 2>&1 &"])
    assert (await sandbox.run(["true"])).ok
    assert len(groups(sandbox)) == 2 * count, "something in the first still runs"
    await sandbox.kill()
    for _ in range(5):
        assert (await sandbox.run(["true"])).ok
    assert len(groups(sandbox)) == 2 * count
    await sandbox.close()
    assert {group.name for group in groups(sandbox)} <= {"e1"}, "the first may be another's"


async def test_the_next_in_a_group_is_not_charged_with_the_last(sandbox: Sandbox) -> None:
    """Nor with the files that it wrote, which are still there."""
    await python(sandbox, HUNGRY)
    await sandbox.run(["sh", "-c", f"head -c {6 * MIB} /dev/zero > big"])
    greedy = await sandbox.run(["python3", "-c", f"bytearray({512 * MIB})"])
    assert greedy.reason is Reason.OOM
    after = await sandbox.run(["false"])
    assert (after.reason, after.exit_code) == (Reason.EXIT, 1)
    assert after.memory_peak_bytes < 6 * MIB
    assert len({group.name for group in groups(sandbox)}) == 1


async def test_root_inside_can_raise_no_limit(sandbox: Sandbox) -> None:
    """It owns the directory outside, but there is no way to it from inside."""
    script = "mount -t cgroup x /mnt; find / -name memory.limit_in_bytes -not -path '/proc/*'"
    done = await sandbox.run(["sh", "-c", script])
    assert done.stdout.text == ""
    mine = f"{cgroups.PREFIX}{os.getpid()}-*/c*/*limit_in_bytes"
    limits = [limit for tree in usable_hierarchies() for limit in tree.base.glob(mine)]
    assert limits
    for limit in limits:
        assert limit.stat().st_uid == os.geteuid()
