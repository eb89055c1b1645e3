"""Warm sandboxes, handed out once and always taken back.

A sandbox is used once: what an attempt did to it never reaches the next. So release destroys it,
and a few are kept ready per spec, so that acquire does not wait for the kernel. How many live at
once is bounded; who comes later waits in line, and the line is bounded too.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import structlog

from tiltyard.core.errors import SandboxClosed, SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.supervised import Sandbox

WAITING_MAX = 10_000
SPECS_WARM_MAX = 8
"""Warm sandboxes are kept for the specs used last; an older spec's are destroyed."""

_log = structlog.get_logger(__name__)


class Provider(Protocol):
    """Starts supervised sandboxes somewhere."""

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        """Makes a sandbox. Raises `SandboxError`, with nothing left behind."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounts:
    """How a pool stands at one moment."""

    warm: int
    in_use: int
    waiting: int
    created: int
    """Since the pool was opened."""


class Pool:
    """Hands out sandboxes of one provider. Use with `async with`."""

    def __init__(self, provider: Provider, *, in_use_max: int = 64, warm: int = 4) -> None:
        """`warm` is how many are kept ready for each spec lately used; 0 makes each on demand."""
        if in_use_max < 1 or warm < 0:
            raise ValueError(f"in_use_max {in_use_max} must be positive, warm {warm} not negative")
        self._provider = provider
        self._warm_target = warm
        self._warm: OrderedDict[SandboxSpec, deque[Sandbox]] = OrderedDict()
        self._filling: dict[SandboxSpec, int] = {}
        self._in_use: dict[SandboxId, Sandbox] = {}
        self._places = asyncio.Semaphore(in_use_max)
        self._waiting = 0
        self._created = 0
        self._group = asyncio.TaskGroup()
        self._open = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._open = True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Destroys every sandbox, also those still in use."""
        self._open = False
        try:
            await self._group.__aexit__(kind, error, trace)
        finally:
            left = [*self._in_use.values(), *(s for kept in self._warm.values() for s in kept)]
            self._warm.clear()
            self._in_use.clear()
            await asyncio.shield(_close_all(left))

    @property
    def counts(self) -> PoolCounts:
        return PoolCounts(
            warm=sum(map(len, self._warm.values())),
            in_use=len(self._in_use),
            waiting=self._waiting,
            created=self._created,
        )

    @asynccontextmanager
    async def sandbox(self, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
        """A sandbox for the length of a block."""
        sandbox = await self.acquire(spec)
        try:
            yield sandbox
        finally:
            await self.release(sandbox)

    async def acquire(self, spec: SandboxSpec) -> Sandbox:
        """Hands out a sandbox that nobody used before; give it back with `release`.

        Waits while as many are in use as may be. Raises `SandboxError` when too many wait already
        or none can be made, and `SandboxClosed` when the pool is closed.
        """
        if not self._open:
            raise SandboxClosed("the pool is closed.", fix="use it inside its `async with`.")
        if self._waiting >= WAITING_MAX:
            raise SandboxError(
                f"{WAITING_MAX} callers wait for a sandbox already.", fix="ask for fewer at once."
            )
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            sandbox = self._take_warm(spec) or await self._create(spec)
        except BaseException:
            self._places.release()
            raise
        self._in_use[sandbox.id] = sandbox
        self._refill(spec)
        return sandbox

    async def release(self, sandbox: Sandbox) -> None:
        """Takes a sandbox back and destroys it. Idempotent; finishes even when cancelled."""
        if self._in_use.pop(sandbox.id, None) is None:
            return
        try:
            await sandbox.close()
        finally:
            self._places.release()

    def _take_warm(self, spec: SandboxSpec) -> Sandbox | None:
        kept = self._warm.get(spec)
        while kept:
            sandbox = kept.popleft()
            if sandbox.alive:
                return sandbox
            # It died while it waited, which costs nobody anything but this note.
            _log.warning("warm_sandbox_died", sandbox_id=sandbox.id)
            self._group.create_task(_close_all([sandbox]))
        return None

    async def _create(self, spec: SandboxSpec) -> Sandbox:
        sandbox = await self._provider.create(spec)
        self._created += 1
        return sandbox

    def _refill(self, spec: SandboxSpec) -> None:
        if not self._warm_target or not self._open:
            return
        kept = self._warm.setdefault(spec, deque())
        self._warm.move_to_end(spec)
        while len(self._warm) > SPECS_WARM_MAX:
            _, old = self._warm.popitem(last=False)
            self._group.create_task(_close_all(list(old)))
        missing = self._warm_target - len(kept) - self._filling.get(spec, 0)
        for _ in range(missing):
            self._filling[spec] = self._filling.get(spec, 0) + 1
            self._group.create_task(self._add_warm(spec))

    async def _add_warm(self, spec: SandboxSpec) -> None:
        try:
            sandbox = await self._create(spec)
        except SandboxError as error:
            # Whoever acquires next makes one itself and is told; a warm one is only a convenience.
            _log.warning("warm_sandbox_failed", error=str(error))
            return
        finally:
            self._filling[spec] -= 1
        kept = self._warm.get(spec)
        if self._open and kept is not None:
            kept.append(sandbox)
        else:
            await sandbox.close()


async def _close_all(sandboxes: list[Sandbox]) -> None:
    for sandbox in sandboxes:
        try:
            await sandbox.close()
        except (SandboxError, TimeoutError) as error:
            _log.error("sandbox_close_failed", sandbox_id=sandbox.id, error=str(error))
