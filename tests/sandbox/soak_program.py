"""Makes and destroys sandboxes, many thousand times; run by `test_soak.py`.

In a process of its own, so that all that it holds can be counted: before the cycles, after a few to
warm up, and after them. It prints both counts and what became of memory as one line of JSON.
"""

import asyncio
import contextlib
import gc
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import structlog

from sandbox.processes import descendants, launchers, name
from tiltyard.core.execution import MIB, Limit, Limits, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies

SPEC = SandboxSpec(
    limits=Limits(memory_bytes=64 * MIB, pids=16, disk_bytes=4 * MIB),
    allow_unenforced=frozenset({Limit.CPU}),
)
AT_ONCE = 4
WARM_UP = 200
PROGRESS_EVERY = 10_000
STILL_S = 0.05
SETTLE_S = 20.0
KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def held(provider: NativeProvider) -> dict[str, int]:
    """How much of each kind there is: of this process, its launcher, and what is below them.

    Cgroups that wait for another sandbox are not counted; how many may is bounded, and tested.
    """
    (launcher,) = launchers()
    pids = [os.getpid(), *descendants(os.getpid())]
    spaces = {link(pid, f"ns/{kind}") for pid in pids for kind in KINDS} - {""}
    mine = f"*tiltyard-{os.getpid()}-*"
    bases = [tree.base for tree in usable_hierarchies()]
    assert provider._slots is not None
    waiting = {Path(place) for slot in provider._slots.free for place in slot.plan.directories}
    cgroups = {path for base in bases for top in base.glob(mine) for path in top.glob("**/")}
    return {
        "processes": len(pids),
        "namespaces": len(spaces),
        "cgroups": sum(waiting.isdisjoint((path, *path.parents)) for path in cgroups),
        "mounts": len(mounts("self")),
        "mounts of the launcher": len(mounts(str(launcher))),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "descriptors of the launcher": len(list(Path(f"/proc/{launcher}/fd").iterdir())),
        "staged files": staged(launcher),
        "temporary files": len(list(Path(os.environ["TMPDIR"]).rglob("*"))),
    }


def link(pid: int, path: str) -> str:
    """Where a link of a process's leads; empty when the process is gone."""
    try:
        return str(Path(f"/proc/{pid}/{path}").readlink())
    except OSError:
        return ""


def mounts(pid: str) -> list[str]:
    """The mounts of ours that a process sees. Others on the machine come and go by themselves."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    stages = tuple(line.split(" ")[4] for line in lines if "tiltyard-stage" in line)
    return [line for line in lines if "tiltyard" in line or line.split(" ")[4].startswith(stages)]


def staged(launcher: int) -> int:
    """How many names the launcher has in its stage, which only it sees."""
    points = [line.split(" ")[4] for line in mounts(str(launcher)) if "tiltyard-stage" in line]
    count = 0
    for _, below, files in os.walk(f"/proc/{launcher}/root{points[0]}"):
        # What is bound there is the machine's own, and large.
        below[:] = [each for each in below if not each.startswith("bind-")]
        count += len(below) + len(files)
    return count


def private_kib(pid: int) -> int:
    """Memory that only this process has."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    fields = (line.split() for line in lines[1:])
    return sum(int(row[1]) for row in fields if row[0] in {"Private_Dirty:", "Private_Clean:"})


async def cycles(provider: NativeProvider, count: int) -> None:
    numbers = iter(range(count))
    started = time.monotonic()

    async def work() -> None:
        for number in numbers:
            sandbox = await provider.create(SPEC)
            try:
                if number % 10 == 0:
                    await sandbox.write("deep/below/file", b"x" * 10_000)
                done = await sandbox.run(["/bin/true"])
            finally:
                await sandbox.close()
            if not done.ok:
                raise RuntimeError(f"/bin/true ended: {done.reason}")
            if (number + 1) % PROGRESS_EVERY == 0:
                rate = (number + 1) / (time.monotonic() - started)
                sys.stderr.write(f"{number + 1} sandboxes, {rate:.0f} a second\n")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def settled(provider: NativeProvider, wanted: dict[str, int] | None) -> dict[str, int]:
    """What is held once it is what is wanted, or no longer changes; at the latest after a while."""
    before: dict[str, int] = {}
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_S):
            while (now := held(provider)) != (before if wanted is None else wanted):
                before = now
                await asyncio.sleep(STILL_S)
    return held(provider)


async def soak(count: int) -> dict[str, Any]:
    async with NativeProvider() as provider:
        await cycles(provider, WARM_UP)
        (launcher,) = launchers()
        gc.collect()
        before = await settled(provider, None)
        host_kib, launcher_kib = private_kib(os.getpid()), private_kib(launcher)
        started = time.monotonic()
        await cycles(provider, count)
        per_s = count / (time.monotonic() - started)
        gc.collect()
        after = await settled(provider, before)
        grown = (private_kib(os.getpid()) - host_kib, private_kib(launcher) - launcher_kib)
        return {
            "before": before,
            "after": after,
            "host_grown_kib": grown[0],
            "launcher_grown_kib": grown[1],
            "launcher": name(launcher),
            "per_s": round(per_s, 1),
        }


def main() -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    sys.stdout.write(json.dumps(asyncio.run(soak(int(sys.argv[1])))) + "\n")


main()
