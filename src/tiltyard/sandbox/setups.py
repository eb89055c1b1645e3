"""Set-up done once: a spec and its set-up steps become a snapshot, and the next one finds it made.

The key is the content of the steps and the spec, so two tasks with the same set-up share it. A step
that fails is the set-up's own error, with its output, and nothing is kept of it.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tiltyard.core.errors import SandboxDied, SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.snapshots import Snapshot

KEPT_MAX = 64
OUTPUT_CHARS_MAX = 2000


class SetUpFailed(SandboxError):
    """A set-up step did not end well. Correct the task; its output is in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetUp:
    """What is done in a fresh sandbox before it is frozen."""

    files: tuple[tuple[str, bytes], ...] = ()
    """Paths with their content, written first."""
    commands: tuple[tuple[str, ...], ...] = ()
    """Programs with arguments, run in order; each must exit with 0."""
    timeout_s: float = 600.0
    """Of each command."""

    def key(self, spec: SandboxSpec) -> str:
        """Names the set-up by content."""
        return hashlib.sha256(repr((spec, self.files, self.commands)).encode()).hexdigest()


@dataclass(slots=True)
class _Kept:
    lock: asyncio.Lock
    users: int = 0
    snapshot: Snapshot | None = None
    """None until the set-up was done, and when it failed."""


class SetUps:
    """Snapshots of set-ups that were done, the ones used last. Use with `async with`."""

    def __init__(self, pool: Pool, *, kept_max: int = KEPT_MAX) -> None:
        self._pool = pool
        self._kept_max = kept_max
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for kept in self._kept.values():
            if kept.snapshot is not None:
                await self._drop(kept.snapshot)
        self._kept.clear()

    @asynccontextmanager
    async def prepared(self, spec: SandboxSpec, set_up: SetUp) -> AsyncIterator[SandboxSpec]:
        """The spec of sandboxes that start with the set-up done; done now when it was not before.

        Good inside the block only: beyond that, those used last are kept. Whoever asks for the same
        meanwhile waits for it. Raises `SetUpFailed` with the command and
        its output, and `SandboxError`.
        """
        key = set_up.key(spec)
        kept = self._kept.setdefault(key, _Kept(lock=asyncio.Lock()))
        self._kept.move_to_end(key)
        kept.users += 1
        try:
            async with kept.lock:
                if kept.snapshot is None:
                    kept.snapshot = await self._made(spec, set_up)
            yield kept.snapshot.spec
        finally:
            kept.users -= 1
            await asyncio.shield(self._trim())

    async def _made(self, spec: SandboxSpec, set_up: SetUp) -> Snapshot:
        """A sandbox's files, with the set-up done in it."""
        async with self._pool.sandbox(spec) as sandbox:
            for path, content in set_up.files:
                await sandbox.write(path, content)
            for command in set_up.commands:
                done = await sandbox.run(command, timeout_s=set_up.timeout_s)
                if done.lost:
                    raise SandboxDied(f"a set-up's sandbox was lost: {done.reason} {done.detail}")
                if not done.ok:
                    said = f"{done.stdout.text}\n{done.stderr.text}".strip()[-OUTPUT_CHARS_MAX:]
                    raise SetUpFailed(
                        f"the set-up step {' '.join(command)!r} ended with {done.reason} "
                        f"{done.exit_code}: {said or done.detail or 'it said nothing'}"
                    )
            # Giving the sandbox back waits for nothing: nobody is cancelled between here and there.
            return await sandbox.snapshot()

    async def _trim(self) -> None:
        spare = len(self._kept) - self._kept_max
        for key, kept in tuple(self._kept.items()):
            if kept.users or (spare <= 0 and kept.snapshot is not None):
                continue
            del self._kept[key]
            spare -= 1
            if kept.snapshot is not None:
                await self._drop(kept.snapshot)

    async def _drop(self, snapshot: Snapshot) -> None:
        self._pool.forget(snapshot.spec)
        await snapshot.drop()
