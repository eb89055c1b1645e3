"""Makes and destroys sandboxes, many thousand times; run by `test_soak.py`.

In a process of its own, so that all that it holds can be counted: before the cycles, after a few to
warm up, and after them. It prints both counts and what became of memory as one line of JSON.

Most cycles are plain, because there have to be many; every tenth takes another way through the
provider, each in its turn: files, a snapshot with a fork, a run of a kept interpreter, a pool's, a
proxy's. The pool and the kept interpreter live all the time, as they do for who uses them.
"""

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import structlog

from sandbox.processes import descendants, launchers, name
from sandbox.zygote_runs import PROGRAM, once
from tiltyard.core.execution import MIB, Limit, Limits, Network, NetworkMode, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.zygotes import ZygoteCells

SPEC = SandboxSpec(
    limits=Limits(memory_bytes=64 * MIB, pids=16, disk_bytes=4 * MIB),
    allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}),
)
PROXIED = replace(SPEC, network=Network(mode=NetworkMode.ALLOW, allow=("192.0.2.7",)))
CELL = replace(SPEC, limits=replace(SPEC.limits, memory_bytes=128 * MIB))
ASKS_PROXY = """
exec 3<>/dev/tcp/127.0.0.1/61080
printf 'GET http://192.0.2.8/ HTTP/1.1\\r\\nHost: 192.0.2.8\\r\\n\\r\\n' >&3
read -r line <&3
case "$line" in *403*) ;; *) echo "$line"; exit 1;; esac
"""
AT_ONCE = 4
OTHER_EVERY = 10
WARM_UP = 200
PROGRESS_EVERY = 10_000
STILL_S = 0.05
SETTLE_S = 20.0
KINDS = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")


def held(provider: NativeProvider) -> dict[str, int]:
    """How much of each kind there is: of this process, its launcher, and what is below them.

    Cgroups that wait for another sandbox are not counted, nor the counters that are kept open for
    them; how many there may be is bounded, and tested.
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
        "descriptors": len(list(Path("/proc/self/fd").iterdir())) - len(provider._counters),
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


def own_kib() -> int:
    """Memory of this process in use: what only waits to be used again is given back before."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return private_kib(os.getpid())


def private_kib(pid: int) -> int:
    """Memory that this process wrote to and only it has, swapped out or not.

    Clean pages are of files, and private for as long as nobody else on the machine maps those.
    """
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    fields = (line.split() for line in lines[1:])
    return sum(int(row[1]) for row in fields if row[0] in {"Private_Dirty:", "Swap:"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ways:
    """The ways through a provider that a cycle may take."""

    provider: NativeProvider
    pool: Pool
    cells: ZygoteCells

    async def plain(self, spec: SandboxSpec = SPEC) -> None:
        sandbox = await self.provider.create(spec)
        try:
            await works(sandbox, "/bin/true")
        finally:
            await sandbox.close()

    async def with_files(self) -> None:
        sandbox = await self.provider.create(SPEC)
        try:
            await sandbox.write("deep/below/file", b"x" * 10_000)
            await works(sandbox, "/bin/true")
        finally:
            await sandbox.close()

    async def forked(self) -> None:
        sandbox = await self.provider.create(SPEC)
        try:
            await sandbox.write("frozen", b"x" * 10_000)
            async with await sandbox.snapshot() as snapshot:
                await self.plain(snapshot.spec)
            if [change.path for change in await sandbox.diff()] != ["/workspace/frozen"]:
                raise RuntimeError("a difference is not what was written")
        finally:
            await sandbox.close()

    async def kept(self) -> None:
        if await once(self.cells, "answer = 6 * 7") != "42":
            raise RuntimeError("a kept interpreter does not work")

    async def pooled(self) -> None:
        async with self.pool.sandbox(SPEC) as sandbox:
            await works(sandbox, "/bin/true")

    async def proxied(self) -> None:
        sandbox = await self.provider.create(PROXIED)
        try:
            await works(sandbox, "bash", "-c", ASKS_PROXY)
            if sandbox.egress is None or sandbox.egress.counts.denied != 1:
                raise RuntimeError("the proxy did not see what was asked of it")
        finally:
            await sandbox.close()

    @property
    def others(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (self.with_files, self.forked, self.kept, self.pooled, self.proxied)


async def works(sandbox: Sandbox, *argv: str) -> None:
    done = await sandbox.run(argv)
    if not done.ok:
        raise RuntimeError(f"{argv[0]} ended: {done.reason} {done.stdout.text}{done.stderr.text}")


async def cycles(ways: Ways, count: int, *, leak: list[bytes], leak_bytes: int) -> None:
    """Goes round `count` times; each time `leak_bytes` are lost to `leak`."""
    numbers = iter(range(count))
    started = time.monotonic()

    async def work() -> None:
        for number in numbers:
            turn, rest = divmod(number, OTHER_EVERY)
            way = ways.plain if rest else ways.others[turn % len(ways.others)]
            await way()
            leak.append(os.urandom(leak_bytes))
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


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Ways]:
    async with (
        NativeProvider() as provider,
        Pool(provider, warm=1, warm_max=1) as pool,
        ZygoteCells(
            provider, interpreter=provider.interpreter, program=PROGRAM, spec=CELL, cells_max=1
        ) as cells,
    ):
        yield Ways(provider=provider, pool=pool, cells=cells)


async def soak(count: int, leak_bytes: int) -> dict[str, Any]:
    leak: list[bytes] = []
    async with opened() as ways:
        await cycles(ways, WARM_UP, leak=[], leak_bytes=0)
        (launcher,) = launchers()
        before = await settled(ways.provider, None)
        host_kib, launcher_kib = own_kib(), private_kib(launcher)
        blocks = sys.getallocatedblocks()
        started = time.monotonic()
        await cycles(ways, count, leak=leak, leak_bytes=leak_bytes)
        per_s = count / (time.monotonic() - started)
        after = await settled(ways.provider, before)
        grown = (own_kib() - host_kib, private_kib(launcher) - launcher_kib)
        return {
            "before": before,
            "after": after,
            "host_grown_kib": grown[0],
            "host_grown_blocks": sys.getallocatedblocks() - blocks,
            "launcher_grown_kib": grown[1],
            "launcher": name(launcher),
            "per_s": round(per_s, 1),
        }


def main() -> None:
    count, leak_bytes = map(int, sys.argv[1:])
    structlog.configure(
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    sys.stdout.write(json.dumps(asyncio.run(soak(count, leak_bytes))) + "\n")


main()
