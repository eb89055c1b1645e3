"""What a fork of a snapshot costs, with a thousand files in it that the sandbox had changed."""

import asyncio
import time

from board import Board
from sandboxes import SPEC
from tiltyard.core.errors import SandboxError
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

CHANGED = 1_000
FORKS_MIN = 5
CHANGE = (
    "mkdir -p tree && cd tree && i=0 && "
    f"while [ $i -lt {CHANGED} ]; do echo $i > file-$i; i=$((i+1)); done"
)
LAST = f"tree/file-{CHANGED - 1}"


async def one_by_one(board: Board) -> None:
    """Forks of a snapshot with a thousand changed files, one after another."""
    latencies: list[float] = []
    async with NativeProvider() as provider:
        first = await provider.create(SPEC)
        await _change(first)
        async with await first.snapshot() as snapshot:
            await _look(await provider.create(snapshot.spec))
            started = end_s = time.perf_counter()
            end_s += board.seconds
            while time.perf_counter() < end_s or len(latencies) < FORKS_MIN:
                before = time.perf_counter()
                fork = await provider.create(snapshot.spec)
                latencies.append((time.perf_counter() - before) * 1000)
                await _look(fork)
            per_s = len(latencies) / (time.perf_counter() - started)
        await first.close()
    board.add(f"fork/native-{CHANGED}", latencies, unit="ms", per_s=per_s, peer=False)


async def _change(sandbox: Sandbox) -> None:
    done = await sandbox.run(["sh", "-c", CHANGE])
    if not done.ok:
        raise SandboxError(f"the files to be frozen cannot be made: {done.reason}")


async def _look(fork: Sandbox) -> None:
    """A fork that lacks a file would be none. Neither this nor its end is in the latency."""
    try:
        if await fork.read(LAST) != b"%d\n" % (CHANGED - 1):
            raise SandboxError(f"{LAST} is not in the fork {fork.id}")
    finally:
        await asyncio.shield(fork.close())
