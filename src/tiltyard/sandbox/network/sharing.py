"""How the sandboxes of one provider share the process that serves all of them.

Its descriptors: each connection takes two, and sandboxes are made with them too. So the places are
a part of what this process may open, and a sandbox that holds most of them does not keep its
neighbours from theirs: it loses its oldest connection to them. Its time: connections begin at a
pace, and of those that have something to pass on, few do so in one turn of the event loop.
"""

import asyncio
import resource
from collections import deque
from typing import Protocol

PLACES_MAX = 1024
DESCRIPTORS_EACH = 2
MOVES_AT_ONCE = 8
"""Of a chunk, which takes from a tenth of a millisecond to one, on a busy machine."""


class Holder(Protocol):
    """What holds places: the proxy of one sandbox."""

    @property
    def held(self) -> int:
        """How many it holds."""
        ...

    def give_up_oldest(self) -> None:
        """Ends its oldest connection, soon."""
        ...


class Pace:
    """How fast something may begin again and again: a first lot at once, then evenly."""

    def __init__(self, *, per_s: float, at_once: int) -> None:
        self._every_s = 1 / per_s
        self._ahead_s = at_once / per_s
        self._due_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """Takes one up; how long to wait before the next."""
        self._due_s = max(self._due_s, now_s - self._ahead_s) + self._every_s
        return max(0.0, self._due_s - now_s)


class Turns:
    """Lets a few at a time go on, in each turn of the event loop, first come first served."""

    def __init__(self, *, at_once: int = MOVES_AT_ONCE) -> None:
        self._at_once = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def mine(self) -> None:
        """Returns in a turn that is the caller's."""
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        given = 0
        while self._waiting and given < self._at_once:
            turn = self._waiting.popleft()
            if not turn.done():  # else its connection has ended meanwhile
                turn.set_result(None)
                given += 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._give)


class Places:
    """The places of one provider."""

    def __init__(self, count: int | None = None) -> None:
        """`count` None takes half of the descriptors that this process may open."""
        self._free = places_here() if count is None else count
        self._holders: set[Holder] = set()
        self._waiting: dict[Holder, asyncio.Future[None]] = {}

    def join(self, holder: Holder) -> None:
        self._holders.add(holder)

    def leave(self, holder: Holder) -> None:
        self._holders.discard(holder)

    async def take(self, taker: Holder) -> None:
        """Waits for a place; give it back with `give`. Of those who wait, who holds least is next.

        A holder waits for one place at a time.
        """
        if self._free:
            self._free -= 1
            return
        greediest = max(self._holders, key=lambda holder: holder.held)
        if greediest.held > taker.held + 1:
            greediest.give_up_oldest()
        turn = self._waiting[taker] = asyncio.get_running_loop().create_future()
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():  # in the same moment as it was its turn
                self.give()
            raise
        finally:
            self._waiting.pop(taker, None)

    def give(self) -> None:
        waiting = [holder for holder, turn in self._waiting.items() if not turn.done()]
        if waiting:
            self._waiting[min(waiting, key=lambda holder: holder.held)].set_result(None)
        else:
            self._free += 1


def places_here() -> int:
    """How many connections this process has descriptors for, leaving it half of them."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = PLACES_MAX * DESCRIPTORS_EACH * 2 if soft == resource.RLIM_INFINITY else soft
    return max(1, min(PLACES_MAX, files // (2 * DESCRIPTORS_EACH)))
