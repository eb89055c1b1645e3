"""The look-ups of all sandboxes of one provider: what each may have under way, and who is next.

A look-up that no name server answers cannot be broken off: it holds a thread until the C library
gives up, which may be half a minute after the program that asked was told so. So its place is given
back when it has ended, and not when nobody waits for it any more: else a sandbox that asks for such
names again and again would hold every thread, and its neighbours' look-ups would wait.

A sandbox has `OWN_MAX` places at the most, and takes another only while more are free than it
holds. So the fewer are left, the fewer the greedy get: it takes ten sandboxes with names that hang
to fill 32 places, and there is always one for a sandbox that has none before that.
"""

import asyncio
from collections import Counter, deque
from dataclasses import dataclass
from functools import partial

from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.network.addresses import Address
from tiltyard.sandbox.network.resolver import LOOKUPS_MAX, Resolver

OWN_MAX = 4
WAITING_MAX = 64
"""Of one sandbox: one for each of its connections, so that only time refuses those of a program
that opens all of them at once."""


class LookupsBusy(Exception):
    """A look-up did not even begin: those that this sandbox has under way do not end."""


@dataclass(eq=False, slots=True, kw_only=True)
class _Asked:
    name: str
    answer: asyncio.Future[tuple[Address, ...]]


class Lookups:
    """Begins look-ups in turn. `open` it, and `aclose` it when nobody asks any more."""

    def __init__(self, resolver: Resolver, *, patience_s: float) -> None:
        """`patience_s` is for one look-up, from the question to the answer."""
        self._resolver = resolver
        self._patience_s = patience_s
        self._free = LOOKUPS_MAX
        self._held: Counter[SandboxId] = Counter()
        self._waiting: dict[SandboxId, deque[_Asked]] = {}
        """Only of those that have any: who is next is looked for among sandboxes, not requests."""
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        await self._group.__aenter__()

    async def aclose(self) -> None:
        """Waits for none of those that are under way."""
        for task in tuple(self._tasks):
            task.cancel()
        await self._group.__aexit__(None, None, None)

    async def resolve(self, name: str, *, by: SandboxId) -> tuple[Address, ...]:
        """The addresses of a name, as `Resolver.resolve` finds them.

        Raises `LookupsBusy` when it could not begin, and `TimeoutError` when it does not end.
        """
        waiting = self._waiting.get(by, deque())
        if len(waiting) >= WAITING_MAX:
            raise LookupsBusy
        asked = _Asked(name=name, answer=asyncio.get_running_loop().create_future())
        waiting.append(asked)
        self._waiting[by] = waiting
        self._begin()
        try:
            async with asyncio.timeout(self._patience_s):
                return await asked.answer
        except TimeoutError:
            if asked in waiting:
                raise LookupsBusy from None
            raise
        finally:
            if asked in waiting:
                waiting.remove(asked)
                if not waiting:
                    del self._waiting[by]

    def _begin(self) -> None:
        """Begins as many as may: of those who wait, who holds least is next."""
        while self._waiting:
            by = min(self._waiting, key=lambda each: self._held[each])
            if self._held[by] >= min(OWN_MAX, self._free):
                return  # and so it is for everybody else
            waiting = self._waiting[by]
            asked = waiting.popleft()
            if not waiting:
                del self._waiting[by]
            self._free -= 1
            self._held[by] += 1
            task = self._group.create_task(self._look_up(asked))
            self._tasks.add(task)
            # Not by the task: one that is cancelled before its first step runs none of itself.
            task.add_done_callback(partial(self._ended, by))

    async def _look_up(self, asked: _Asked) -> None:
        try:
            found = await self._resolver.resolve(asked.name)
        except Exception as error:  # noqa: BLE001 - the top of a task; whoever waits is told
            if not asked.answer.done():
                asked.answer.set_exception(error)
            return
        if not asked.answer.done():
            asked.answer.set_result(found)

    def _ended(self, by: SandboxId, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._free += 1
        self._held[by] -= 1
        if not self._held[by]:
            del self._held[by]
        self._begin()
