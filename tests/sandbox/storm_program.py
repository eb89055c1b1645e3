"""Makes and destroys sandboxes while their processes are killed at random; run by `test_leaks.py`.

In a process of its own, so that everything below it can be counted: it prints what is left at its
end as JSON. With `hang`, it stops half-way with sandboxes in use, says so, and waits to be killed.
"""

import asyncio
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import structlog

from sandbox.processes import descendants, launchers, name
from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import MIB, Limit, Limits, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies
from tiltyard.sandbox.pool import Pool

SPEC = SandboxSpec(
    limits=Limits(memory_bytes=64 * MIB, pids=16, disk_bytes=4 * MIB),
    allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}),
)
AT_ONCE = 16
KILL_EVERY_S = 0.01
SCRIPTS = (
    "true",
    "sleep 0.02; echo done",
    "(sleep 1000 &) ; sleep 0.01",
    "setsid sleep 1000 & echo begun; sleep 0.05",
    "head -c 100000 /dev/zero; cat /dev/zero > /tmp/full",
)


def left_over() -> dict[str, list[str]]:
    """Everything of ours that there is now."""
    mine = f"*tiltyard-{os.getpid()}-*"
    return {
        "processes": sorted(f"{pid} {name(pid)}" for pid in descendants(os.getpid())),
        "cgroups": sorted(str(p) for tree in usable_hierarchies() for p in tree.base.glob(mine)),
        "mounts": Path("/proc/self/mountinfo").read_text().splitlines(),
        "descriptors": descriptors(),
        "files": sorted(map(str, Path(os.environ["TMPDIR"]).iterdir())),
    }


def descriptors() -> list[str]:
    """What each open descriptor is; the listing's own is gone by the time it is looked at."""
    found = []
    for path in list(Path("/proc/self/fd").iterdir()):
        with suppress(OSError):
            found.append(str(path.readlink()).partition(":")[0])
    # The C library looks at this for a moment when a thread of the executor's ends.
    return sorted(kind for kind in found if kind != "/proc/sys/vm/overcommit_memory")


def tell(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(KILL_EVERY_S)


async def kill_at_random(chance: random.Random) -> NoReturn:
    """Ends processes inside sandboxes: the first one of each, and programs."""
    while True:
        await asyncio.sleep(KILL_EVERY_S)
        victims = [pid for launcher in launchers() for pid in descendants(launcher)]
        if victims:
            try:
                os.kill(chance.choice(victims), signal.SIGKILL)
            except ProcessLookupError:
                continue


async def use(pool: Pool, script: str, ends: Counter[str]) -> None:
    try:
        async with pool.sandbox(SPEC) as sandbox:
            await sandbox.write("script", script)
            done = await sandbox.run(["sh", "script"], timeout_s=2)
            ends[done.reason] += 1
    except SandboxError as error:
        ends[type(error).__name__] += 1


async def storm(count: int, *, kill_launcher: bool) -> Counter[str]:
    chance = random.Random(count)  # noqa: S311 - which processes die
    ends: Counter[str] = Counter()
    async with (
        NativeProvider() as provider,
        Pool(provider, in_use_max=AT_ONCE, warm=2) as pool,
        asyncio.TaskGroup() as group,
    ):
        killing = group.create_task(kill_at_random(chance))
        async with asyncio.TaskGroup() as users:
            for number in range(count):
                users.create_task(use(pool, SCRIPTS[number % len(SCRIPTS)], ends))
            if kill_launcher:
                await until(lambda: sum(ends.values()) >= count // 3)
                os.kill(launchers()[0], signal.SIGKILL)
        killing.cancel()
    return ends


async def hang() -> None:
    async with (
        NativeProvider() as provider,
        Pool(provider, warm=4) as pool,
        asyncio.TaskGroup() as group,
    ):
        for _ in range(8):
            group.create_task(use_for_ever(pool))
        await until(lambda: [name(pid) for pid in descendants(os.getpid())].count("sleep") >= 16)
        tell({"pids": list(descendants(os.getpid()))})


async def use_for_ever(pool: Pool) -> None:
    async with pool.sandbox(SPEC) as sandbox:
        await sandbox.run(["sh", "-c", "setsid sleep 1000 & exec sleep 1000"], timeout_s=1000)


async def hang_with_child() -> None:
    async with NativeProvider() as provider:
        sandbox = await provider.create(SPEC)
        pids = list(descendants(os.getpid()))
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # it holds every other descriptor of its parent's open, and lives on
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        tell({"pids": pids, "child": child})
        await sandbox.run(["sleep", "1000"], timeout_s=1000)


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    kind, count = sys.argv[1], int(sys.argv[2])
    if kind == "hang":
        asyncio.run(hang())
    elif kind == "hang-with-child":
        asyncio.run(hang_with_child())
    else:
        before = left_over()
        ends = asyncio.run(storm(count, kill_launcher=kind == "launcher"))
        tell({"before": before, "after": left_over(), "ends": ends})


main()
