"""Warm sandboxes, handed out once and always taken back.

A sandbox is used once: what an attempt did to it never reaches the next. So release kills it, and
some are kept ready per spec, so that acquire does not wait for the kernel: a few at all events, and
more after many were asked for at once (`demand.py`). How many there are at once is bounded; who
comes later waits in line, and the line is bounded too.

To remove a killed sandbox takes the kernel a moment, which whoever gives it back has no use for:
the pool waits for that in a task of its own, and until then the sandbox keeps its place.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Protocol, Self

import structlog

from tiltyard.core.errors import SandboxClosed, SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.demand import Demand
from tiltyard.sandbox.fitness import is_fit
from tiltyard.sandbox.places import Places
from tiltyard.sandbox.snapshots import Snapshot
from tiltyard.sandbox.supervised import Sandbox

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
    target: int
    """How many are to be warm, of all specs together, by what was asked for lately."""
    in_use: int
    waiting: int
    creating: int
    """To be kept warm; those that somebody waits for are in use."""
    closing: int
    """Killed, and not gone yet; each that was in use still has its place."""
    created: int
    """Since the pool was opened; so are all below."""
    acquired: int
    found_warm: int
    """Of those acquired."""
    waited_s: float
    """By all that acquired one, for their turn and for the making."""


@dataclass(slots=True)
class _Shelf:
    """What is kept warm for one spec."""

    demand: Demand
    kept: deque[Sandbox] = field(default_factory=deque)
    filling: int = 0
    """How many are being made for it."""


class Pool:
    """Hands out sandboxes of one provider. Use with `async with`."""

    def __init__(
        self,
        provider: Provider,
        *,
        in_use_max: int = 64,
        warm: int = 4,
        warm_max: int = 32,
        checked_after_s: float = 10.0,
    ) -> None:
        """`warm` is how many are kept ready for each spec lately used; 0 makes each on demand.

        Where more were asked for at once in the last minute, so many are kept, but no more than
        `warm_max` of a spec: each costs up to 0.8 MB. One that was kept longer than
        `checked_after_s` has to answer before it is handed out.
        """
        if in_use_max < 1 or not 0 <= warm <= warm_max:
            raise ValueError(
                f"in_use_max {in_use_max} must be positive, warm {warm} not negative and not above "
                f"warm_max {warm_max}"
            )
        self._provider = provider
        self._checked_after_s = checked_after_s
        self._warm = warm
        self._warm_max = warm_max if warm else 0
        self._shelves: OrderedDict[SandboxSpec, _Shelf] = OrderedDict()
        self._falling: asyncio.TimerHandle | None = None
        """Wakes the pool when it should keep fewer; None while every shelf's target is `warm`."""
        self._making = 0
        self._in_use: dict[SandboxId, Sandbox] = {}
        self._closing: dict[SandboxId, Sandbox] = {}
        self._in_use_max = in_use_max
        self._places = Places(in_use_max)
        self._created = 0
        self._acquired = 0
        self._found_warm = 0
        self._waited_s = 0.0
        self._group = asyncio.TaskGroup()
        self._refills: set[asyncio.Task[None]] = set()
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
        """Destroys every sandbox, also those still in use, and waits until all are gone.

        Who waits for one gets `SandboxClosed`.
        """
        self._open = False
        self._places.close()
        if self._falling is not None:
            self._falling.cancel()
        left = [*self._in_use.values(), *(s for each in self._shelves.values() for s in each.kept)]
        self._shelves.clear()
        self._in_use.clear()
        for sandbox in left:
            self._closing[sandbox.id] = sandbox
            sandbox.destroy()
        for refill in tuple(self._refills):
            refill.cancel()
        try:
            # An error of the body is the body's: the group is told of none, so it wraps none.
            await self._group.__aexit__(None, None, None)
        finally:
            # With those whose tasks were cancelled: by whoever cancelled the wait for the group.
            await asyncio.shield(_close_all(self._closing.values()))
            self._closing.clear()

    @property
    def counts(self) -> PoolCounts:
        now_s = asyncio.get_running_loop().time() if self._shelves else 0.0
        return PoolCounts(
            warm=sum(len(shelf.kept) for shelf in self._shelves.values()),
            target=sum(shelf.demand.target(now_s) for shelf in self._shelves.values()),
            in_use=len(self._in_use),
            waiting=self._places.waiting,
            creating=len(self._refills),
            closing=len(self._closing),
            created=self._created,
            acquired=self._acquired,
            found_warm=self._found_warm,
            waited_s=self._waited_s,
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

        Waits, first come first served, while as many are in use as may be. Raises `SandboxError`
        when too many wait already or none can be made, and `SandboxClosed` when the pool is closed.
        """
        self._check_open()
        now = asyncio.get_running_loop().time
        asked_s = now()
        await self._places.take()
        sandbox: Sandbox | None = None
        try:
            self._check_open()
            shelf = self._shelf_of(spec)
            self._ask(shelf, now())
            sandbox = await self._take_warm(shelf)
            self._found_warm += sandbox is not None
            sandbox = sandbox or await self._create(shelf, spec)
            self._check_open()  # it may have been closed while this one was made
        except BaseException:
            self._places.give()
            if sandbox is not None:
                await _close(sandbox)
            raise
        self._in_use[sandbox.id] = sandbox
        self._acquired += 1
        self._waited_s += now() - asked_s
        # Whoever has just been given a sandbox is about to run something in it, and making others
        # beside that would slow it down: while half of them are left, that waits until one is gone.
        shelf = self._shelf_of(spec)
        if len(shelf.kept) + shelf.filling < (self._warm + 1) // 2:
            self._fill(shelf, spec, count=self._warm)
        return sandbox

    async def fork(self, snapshot: Snapshot, *, count: int) -> list[Sandbox]:
        """Hands out `count` sandboxes that stand on a snapshot; all of them, or none.

        Raises `SandboxError` as `acquire` does, and when that many are never to be had at once.
        """
        if not 1 <= count <= self._in_use_max:
            raise SandboxError(
                f"{count} forks at once, and this pool hands out {self._in_use_max} at most.",
                fix="ask for fewer, or raise in_use_max.",
            )
        making: list[asyncio.Task[Sandbox]] = []
        try:
            async with asyncio.TaskGroup() as group:
                making.extend(group.create_task(self.acquire(snapshot.spec)) for _ in range(count))
        except BaseException as error:
            for task in making:
                if not _failed(task):
                    await self.release(task.result())
            if isinstance(error, BaseExceptionGroup):
                raise error.exceptions[0] from None
            raise
        return [task.result() for task in making]

    def forget(self, spec: SandboxSpec) -> None:
        """Destroys what is kept warm for a spec that will not be asked for again."""
        if (shelf := self._shelves.pop(spec, None)) is not None:
            self._clear(shelf, left=0)

    async def release(self, sandbox: Sandbox) -> None:
        """Takes a sandbox back and kills it, at once and without waiting. Idempotent.

        The pool waits until nothing of it is left, and only then is its place another's. One that
        does not go is logged, and loses its place all the same.
        """
        if self._in_use.pop(sandbox.id, None) is not None:
            self._see_off(sandbox, has_place=True)

    def _check_open(self) -> None:
        if not self._open:
            raise SandboxClosed("the pool is closed.", fix="use it inside its `async with`.")

    def _shelf_of(self, spec: SandboxSpec) -> _Shelf:
        """Its shelf, which is the last now to be given up for another spec's."""
        shelf = self._shelves.get(spec)
        if shelf is not None:
            self._shelves.move_to_end(spec)
            return shelf
        shelf = _Shelf(Demand(warm=self._warm, warm_max=self._warm_max))
        self._shelves[spec] = shelf
        if len(self._shelves) > SPECS_WARM_MAX:
            self._clear(self._shelves.popitem(last=False)[1], left=0)
        return shelf

    def _clear(self, shelf: _Shelf, *, left: int) -> None:
        """Destroys the oldest, until so many are left."""
        while len(shelf.kept) > left:
            self._see_off(shelf.kept.popleft())

    def _ask(self, shelf: _Shelf, now_s: float) -> None:
        shelf.demand.asked(now_s)
        if self._falling is None and shelf.demand.falls_s is not None:
            self._let_fall()

    def _let_fall(self) -> None:
        """Destroys what is no longer worth keeping, and comes back when that is so of others."""
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for shelf in self._shelves.values():
            self._clear(shelf, left=shelf.demand.target(now_s))
        falls_s = (shelf.demand.falls_s for shelf in self._shelves.values())
        next_s = min((each for each in falls_s if each is not None), default=None)
        self._falling = None if next_s is None else loop.call_at(next_s, self._let_fall)

    async def _take_warm(self, shelf: _Shelf) -> Sandbox | None:
        while shelf.kept:
            sandbox = shelf.kept.popleft()
            try:
                if await is_fit(sandbox, checked_after_s=self._checked_after_s):
                    return sandbox
            except BaseException:
                self._see_off(sandbox)
                raise
            # It died while it waited, which costs nobody anything but this note.
            _log.warning("warm_sandbox_unfit", sandbox_id=sandbox.id, alive=sandbox.alive)
            self._see_off(sandbox)
        return None

    def _see_off(self, sandbox: Sandbox, *, has_place: bool = False) -> None:
        """Kills a sandbox, and has it waited for; `has_place` when it was in use."""
        if self._open:
            self._closing[sandbox.id] = sandbox
            self._group.create_task(self._await_end(sandbox, has_place=has_place))
        # Else it was being checked while the pool was closed, which waits for no more tasks.
        sandbox.destroy()

    async def _await_end(self, sandbox: Sandbox, *, has_place: bool) -> None:
        await _close(sandbox)
        # Not when cancelled: then the pool is being closed, and waits for it itself.
        del self._closing[sandbox.id]
        if has_place:
            self._places.give()
            shelf = self._shelves.get(sandbox.spec)
            if self._open and shelf is not None:
                self._replace(shelf, sandbox.spec)

    def _replace(self, shelf: _Shelf, spec: SandboxSpec) -> None:
        """One has ended, so another may be made: up to `warm` all that are missing, above that one.

        So a burst brings about its own number, spread over its ends, and not while its callers
        are at work.
        """
        shelf.demand.ended()
        count = max(self._warm, len(shelf.kept) + shelf.filling + 1)
        target = shelf.demand.target(asyncio.get_running_loop().time())
        self._fill(shelf, spec, count=min(count, target))

    async def _create(self, shelf: _Shelf, spec: SandboxSpec) -> Sandbox:
        now = asyncio.get_running_loop().time
        began_s, alone = now(), not self._making
        self._making += 1
        try:
            sandbox = await self._provider.create(spec)
        finally:
            self._making -= 1
        self._created += 1
        if alone:
            shelf.demand.timed(now() - began_s)
        return sandbox

    def _fill(self, shelf: _Shelf, spec: SandboxSpec, *, count: int) -> None:
        """Makes as many as are missing until so many are kept or being made."""
        for _ in range(count - len(shelf.kept) - shelf.filling):
            shelf.filling += 1
            refill = self._group.create_task(self._add_warm(shelf, spec))
            self._refills.add(refill)
            # A task that is cancelled before its first step runs none of itself.
            refill.add_done_callback(partial(self._refilled, shelf))

    def _refilled(self, shelf: _Shelf, refill: "asyncio.Task[None] | None") -> None:
        if refill is None or refill not in self._refills:
            return  # counted already, in the step that made the sandbox available
        self._refills.discard(refill)
        shelf.filling -= 1

    async def _add_warm(self, shelf: _Shelf, spec: SandboxSpec) -> None:
        try:
            sandbox = await self._create(shelf, spec)
        except Exception as error:  # noqa: BLE001 - the top of a task that nobody waits for
            # Whoever acquires next makes one itself and is told; a warm one is only a convenience.
            _log.warning("warm_sandbox_failed", error=str(error))
            return
        target = shelf.demand.target(asyncio.get_running_loop().time())
        if self._shelves.get(spec) is shelf and len(shelf.kept) < target:
            # In one step: whoever acquires in between would count this sandbox twice.
            shelf.kept.append(sandbox)
            self._refilled(shelf, asyncio.current_task())
        else:
            await _close(sandbox)


def _failed(task: "asyncio.Task[Sandbox]") -> bool:
    return task.cancelled() or task.exception() is not None


async def _close_all(sandboxes: Iterable[Sandbox]) -> None:
    async with asyncio.TaskGroup() as group:
        for sandbox in sandboxes:
            sandbox.destroy()
            group.create_task(_close(sandbox))


async def _close(sandbox: Sandbox) -> None:
    try:
        await sandbox.close()
    except Exception as error:  # noqa: BLE001 - the top of a task that nobody waits for
        # It is killed, and its provider goes on removing it; there is nobody here to tell.
        _log.error("sandbox_close_failed", sandbox_id=sandbox.id, error=str(error))
