"""Makes snapshots until they are refused; run by `test_snapshot_memory.py`.

In a process of its own, because it goes into a small cgroup, so that a quarter of the memory that
it may have is soon held. It prints what came of it as one line of JSON, whatever that is.
"""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from sandbox.processes import frozen_layers
from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import MIB, Limit, Limits, SandboxSpec
from tiltyard.sandbox.native.image import host_image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.snapshots import Snapshot
from tiltyard.sandbox.supervised import Sandbox

SPEC = SandboxSpec(
    limits=Limits(memory_bytes=192 * MIB, pids=16, disk_bytes=128 * MIB, inodes=65_536),
    allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}),
)
FILE_BYTES = 40 * MIB
"""Three of them fit into the 128 MiB that snapshots may hold here, and four do not."""
BIG_BYTES = 127 * MIB
"""Two sandboxes and their copies have no room in the cgroup: a second copy must stop half-way."""
EMPTY_FILES = 60_000
"""One of them is nothing on the disk, but so many hold nearly half of the same memory."""
TRIED_MAX = 8


@dataclass(kw_only=True)
class Said:
    """What came of it; see the functions below."""

    in_turn: int = 0
    refusal: str = ""
    kind: str = ""
    left_by_refused: int = 0
    goes_on: bool = False
    after_drop: int = 0
    under_a_fork: int = 0
    after_the_fork: int = 0
    at_once: int = 0
    of_big_ones: int = 0
    of_empty_files: int = 0
    of_shared_memory: int = 0


async def sh(sandbox: Sandbox, script: str) -> None:
    done = await sandbox.run(["sh", "-c", script])
    assert done.ok, done.stderr.text


async def taken(sandboxes: Sequence[Sandbox]) -> list[Snapshot]:
    """Those that were not refused."""
    made = []

    async def take(sandbox: Sandbox) -> None:
        with suppress(SandboxError):
            made.append(await sandbox.snapshot())

    async with asyncio.TaskGroup() as group:
        for sandbox in sandboxes:
            group.create_task(take(sandbox))
    return made


async def count_in_turn(sandbox: Sandbox) -> int:
    """How many can be had before one is refused; then they are dropped."""
    async with AsyncExitStack() as stack:
        for number in range(TRIED_MAX):
            made = await taken([sandbox])
            if not made:
                return number
            await stack.enter_async_context(made[0])
    return TRIED_MAX


async def fill(provider: NativeProvider, sandbox: Sandbox, said: Said) -> None:
    held = await taken([sandbox] * 3)
    try:
        held.append(await sandbox.snapshot())
    except SandboxError as error:
        said.refusal, said.kind = str(error), type(error).__name__
    said.in_turn = len(held)
    said.left_by_refused = len(frozen_layers()) - len(held)
    said.goes_on = (await sandbox.run(["true"])).ok
    await held.pop().drop()
    said.after_drop = len(again := await taken([sandbox] * 2))
    held += again
    fork = await provider.create(held[0].spec)
    await held.pop(0).drop()
    said.under_a_fork = len(await taken([sandbox]))
    await fork.close()
    said.after_the_fork = len(again := await taken([sandbox]))
    for snapshot in (*held, *again):
        await snapshot.drop()


async def main(cgroup: Path) -> None:
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    (cgroup / "cgroup.procs").write_text(str(os.getpid()))
    said = Said()
    async with NativeProvider(image=host_image()) as provider:
        boxes = [await provider.create(SPEC) for _ in range(4)]
        for box in boxes:
            await sh(box, f"head -c {FILE_BYTES} /dev/urandom > file")
        await fill(provider, boxes[0], said)
        said.at_once = len(made := await taken(boxes))
        for snapshot in made:
            await snapshot.drop()
        for box in boxes[2:]:
            await box.close()
        for box in boxes[:2]:
            await sh(box, f"head -c {BIG_BYTES} /dev/urandom > file")
        said.of_big_ones = len(made := await taken(boxes[:2]))
        for snapshot in made:
            await snapshot.drop()
        await boxes[1].close()
        await sh(boxes[0], f"rm file; mkdir d; cd d; seq {EMPTY_FILES} | xargs touch")
        said.of_empty_files = await count_in_turn(boxes[0])
        await sh(boxes[0], f"rm -r d; head -c {FILE_BYTES} /dev/urandom > /dev/shm/file")
        said.of_shared_memory = await count_in_turn(boxes[0])
        await boxes[0].close()
    sys.stdout.write(json.dumps(asdict(said)))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
