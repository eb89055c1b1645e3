"""Many sandboxes: how many a second two processes make, and what thousands that live cost."""

import asyncio
import resource
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import AsyncExitStack
from pathlib import Path

from board import Board
from sandboxes import PROGRAM, SPEC
from tiltyard.core.errors import SandboxError
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

WORKERS = 2
AT_ONCE = 2
"""In each worker: while the kernel makes one sandbox, Python sees to the other."""
IDLE = 1_000
IDLE_QUICK = 40
LIVE = 2_000
FULL_SECONDS_MIN = 1.0
"""A shorter benchmark makes fewer idle sandboxes, and does not fill the machine."""
CREATING = 4
DESCRIPTORS_EACH = 4
MIB = 1 << 20


async def sustained(board: Board) -> None:
    """Two processes create, run and destroy without pause."""
    argv = [sys.executable, __file__, str(board.seconds)]
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(_worker(argv)) for _ in range(WORKERS)]
    latencies, per_s = [], 0.0
    for task in running:
        each = task.result()
        latencies += each
        per_s += len(each) / board.seconds
    board.add(f"sustained/native-cold/c{WORKERS}", latencies, unit="ms", per_s=per_s, peer=False)


async def _worker(argv: list[str]) -> list[float]:
    process = await asyncio.create_subprocess_exec(*argv, stdin=DEVNULL, stdout=PIPE)
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.terminate()
            await asyncio.shield(process.wait())
    if process.returncode != 0:
        raise SandboxError(f"a worker of the benchmark ended with {process.returncode}")
    return [float(value) for value in out.split()]


async def work(seconds: float) -> list[float]:
    """What one worker does; returns the milliseconds of each sandbox that ended in time."""
    latencies: list[float] = []
    async with NativeProvider() as provider:
        end_s = time.perf_counter() + seconds

        async def one_after_the_other() -> None:
            while (before := time.perf_counter()) < end_s:
                sandbox = await provider.create(SPEC)
                try:
                    result = await sandbox.run(PROGRAM)
                finally:
                    await sandbox.close()
                if not result.ok:
                    raise SandboxError(f"/bin/true ended: {result.reason}")
                latencies.append((time.perf_counter() - before) * 1000)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(one_after_the_other())
    return latencies


async def idle(board: Board) -> None:
    """A thousand sandboxes that do nothing, by the memory that the machine has less."""
    count = IDLE if board.seconds >= FULL_SECONDS_MIN else IDLE_QUICK
    _allow_descriptors(count)
    started = time.perf_counter()
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(NativeProvider())
        before = _available_bytes()
        await _fill(provider, stack, count)
        cost_mib = (before - _available_bytes()) / MIB / count
        per_s = count / (time.perf_counter() - started)
    board.add(f"idle/native-{count}", [cost_mib], unit="MB", per_s=per_s, peer=False)


async def live(board: Board) -> None:
    """Two thousand sandboxes at once, each of which answers; not in a short benchmark."""
    if board.seconds < FULL_SECONDS_MIN:
        board.leave_out(f"live/native-{LIVE}", "it takes half a minute; use a longer --seconds")
        return
    _allow_descriptors(LIVE)
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(NativeProvider())
        before, started = _available_bytes(), time.perf_counter()
        sandboxes = await _fill(provider, stack, LIVE)
        filled_s = time.perf_counter() - started
        cost_mib = (before - _available_bytes()) / MIB / LIVE
        for sandbox in sandboxes:
            result = await sandbox.run(PROGRAM)
            if not result.ok:
                raise SandboxError(f"{sandbox.id} of {LIVE} does not work: {result.reason}")
    per_s = LIVE / filled_s
    board.add(f"live/native-{LIVE}", [cost_mib], unit="MB", per_s=per_s, peer=False)
    board.add(f"live-up/native-{LIVE}", [filled_s], unit="s", per_s=per_s, peer=False)


def _allow_descriptors(count: int) -> None:
    """Lets this process have as many as so many sandboxes take, or all that it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count * DESCRIPTORS_EACH + 1024
    if soft != resource.RLIM_INFINITY and soft < wanted:
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _fill(provider: NativeProvider, stack: AsyncExitStack, count: int) -> list[Sandbox]:
    """Makes so many, a few at a time, which the stack's end closes."""
    async with asyncio.TaskGroup() as group:
        making = [
            group.create_task(_make(provider, stack, count // CREATING)) for _ in range(CREATING)
        ]
    return [sandbox for task in making for sandbox in task.result()]


async def _make(provider: NativeProvider, stack: AsyncExitStack, count: int) -> list[Sandbox]:
    made: list[Sandbox] = []
    for _ in range(count):
        sandbox = await provider.create(SPEC)
        stack.push_async_callback(sandbox.close)
        made.append(sandbox)
    return made


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    raise SandboxError("/proc/meminfo does not say what is available")


if __name__ == "__main__":
    print(*asyncio.run(work(float(sys.argv[1]))))
