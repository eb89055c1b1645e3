"""Making a place, running /bin/true in it and removing it, beside systems that do the same."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from board import Board
from containers import container_peers
from peers import bwrap_argv, run_program
from race import PeerFailed, System, race
from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import Limit, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.supervised import Sandbox

SPEC = SandboxSpec(allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}))
"""An ordinary user has no cgroup to hold these two; all else is held everywhere."""
PROGRAM = ["/bin/true"]
WARM = 4
CONCURRENCIES = (1, 2, 8)
SETTLE_TIMEOUT_S = 10.0
SETTLE_LOOK_S = 0.0002


async def one_by_one(board: Board) -> None:
    """One caller, each operation on a system at rest."""
    async with (
        systems(board, "sandbox") as racing,
        container_peers(board, "sandbox", PROGRAM) as containers,
    ):
        await race(board, "sandbox", [*racing, *containers], paced=True)


async def under_load(board: Board) -> None:
    """Callers that come back at once, so that nothing is ever at rest."""
    async with systems(board, "sandbox-load") as racing:
        for concurrency in CONCURRENCIES:
            await race(board, "sandbox-load", racing, concurrency=concurrency)


@asynccontextmanager
async def systems(board: Board, bench: str) -> AsyncIterator[list[System]]:
    """The systems of both races, opened."""
    async with (
        NativeProvider() as provider,
        Pool(provider, warm=WARM) as pool,
        pool.sandbox(SPEC) as live,
    ):

        async def warm() -> None:
            async with pool.sandbox(SPEC) as sandbox:
                await _run_in(sandbox)

        async def full() -> None:
            await at_rest(pool, warm=WARM)

        async def cold() -> None:
            sandbox = await provider.create(SPEC)
            try:
                await _run_in(sandbox)
            finally:
                await sandbox.close()

        await full()
        racing = [
            System(name="native-warm", once=warm, settle=full),
            System(name="native-cold", once=cold),
            System(name="native-exec", once=lambda: _run_in(live)),
            System(name="subprocess", once=lambda: run_program(PROGRAM), peer=True),
        ]
        try:
            wrapped = bwrap_argv(*PROGRAM)
        except PeerFailed as error:
            board.leave_out(f"{bench}/bwrap", str(error))
        else:
            racing.append(System(name="bwrap", once=lambda: run_program(wrapped), peer=True))
        yield racing


async def at_rest(pool: Pool, *, warm: int = 0) -> None:
    """Waits until what was given back is gone and nothing is being made; `warm`: and so many are.

    Nothing of a pool's work falls into another system's slice then.
    """
    try:
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            while True:
                counts = pool.counts
                if not counts.closing and not counts.creating and counts.warm >= warm:
                    return
                await asyncio.sleep(SETTLE_LOOK_S)  # a pool at rest tells nobody
    except TimeoutError:
        raise SandboxError(f"the pool is not at rest: {pool.counts}") from None


async def _run_in(sandbox: Sandbox) -> None:
    result = await sandbox.run(PROGRAM)
    if not result.ok:
        raise SandboxError(f"/bin/true in sandbox {sandbox.id} ended: {result.reason}")
