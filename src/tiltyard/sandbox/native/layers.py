"""The snapshots of one provider, and what is asked of the launcher about sandboxes' layers."""

import asyncio
import re
import secrets
from dataclasses import replace

from tiltyard.core.errors import SandboxError, SandboxRefused
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import SandboxId, SnapshotId
from tiltyard.sandbox.native.launcher import Launcher, StepFailed
from tiltyard.sandbox.snapshots import Snapshot

SNAPSHOTS_MAX = 256
"""The same in native/snapshots.h."""
_TOO_MUCH_MEMORY = re.compile(r"memory for snapshots \((\d+) MiB\)")
"""The step at which native/snapshots.c stops, with all that they may hold together."""
_TOO_MANY_CHANGES = "differences"
"""The step at which native/differences.c stops; the limits are there."""


class Layers:
    """Numbers the snapshots that live, and knows them by id."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._numbers: dict[SnapshotId, int] = {}
        self._free = list(range(SNAPSHOTS_MAX, 0, -1))
        self._abandoned: set[int] = set()
        """Copies that nobody waited for to their end."""
        self._dropping = asyncio.Lock()
        self._made = 0
        self._token = secrets.token_hex(8)
        """Of no other provider, here or elsewhere: a spec may have travelled."""

    def number_of(self, spec: SandboxSpec) -> int:
        """What the launcher calls the snapshot of a spec; 0 for none. Raises `SandboxRefused`."""
        if spec.snapshot is None:
            return 0
        number = self._numbers.get(spec.snapshot)
        if number is None:
            raise SandboxRefused(
                f"unknown snapshot {spec.snapshot!r}: it was dropped, or is another provider's.",
                fix="take the spec from a `Snapshot` that lives.",
            )
        return number

    async def snapshot(self, sandbox_id: SandboxId, spec: SandboxSpec) -> Snapshot:
        """Copies a sandbox's layer.

        Raises `SandboxError`, with nothing left behind, also when all of them would hold too much.
        """
        await self._drop_abandoned()
        if not self._free:
            raise SandboxError(
                f"sandbox {sandbox_id}: there are {SNAPSHOTS_MAX} snapshots already.",
                fix="drop those that no more forks are wanted from.",
            )
        number = self._free.pop()
        try:
            await self._launcher.snapshot(number, sandbox_id)
        except SandboxError as error:
            self._free.append(number)
            step = error.step if isinstance(error, StepFailed) else ""
            if too_much := _TOO_MUCH_MEMORY.fullmatch(step):
                raise SandboxError(
                    f"sandbox {sandbox_id}: with its snapshot, all of them would hold more than "
                    f"{too_much[1]} MiB, a quarter of the memory here.",
                    fix="drop those that no more forks are wanted from and close the forks that "
                    "stand on them, or remove files before you freeze the rest.",
                ) from None
            raise
        except BaseException:
            # The launcher finishes its copy all the same.
            self._abandoned.add(number)
            raise
        self._made += 1
        id_ = SnapshotId(f"snapshot-{self._token}-{self._made}")
        self._numbers[id_] = number
        return Snapshot(id_=id_, spec=replace(spec, snapshot=id_), keeper=self)

    async def drop(self, snapshot_id: SnapshotId) -> None:
        """Gives a snapshot up. Raises `SandboxError` when there is none."""
        number = self._numbers.pop(snapshot_id, None)
        if number is None:
            raise SandboxError(f"there is no snapshot {snapshot_id}.")
        self._abandoned.add(number)
        await self._drop_abandoned()

    async def changes(self, sandbox_id: SandboxId) -> bytes:
        """The records of what a sandbox changed. Raises `SandboxError`."""
        try:
            return await self._launcher.changes(sandbox_id)
        except StepFailed as failed:
            if failed.step != _TOO_MANY_CHANGES:
                raise
            raise SandboxRefused(
                f"sandbox {sandbox_id} changed too much to be told: more than 100,000 changes or "
                "32 MiB of paths.",
                fix="remove what no one wants to see (caches, builds) and ask again, fetch what is "
                "wanted with `files`, or take a snapshot before such work and diff its fork.",
            ) from None

    async def _drop_abandoned(self) -> None:
        # One at a time: dropped twice, a number would be given to two snapshots.
        async with self._dropping:
            for number in tuple(self._abandoned):
                if await self._launcher.drop(number):
                    self._abandoned.discard(number)
                    self._free.append(number)
