"""A bounded number of places, and the bounded line of those who wait for one.

What holds a place is up to whoever takes it: here is only who is next, first come first served, and
that no place is lost however a wait ends.
"""

import asyncio
from collections import deque
from contextlib import suppress

from tiltyard.core.errors import SandboxClosed, SandboxError

WAITING_MAX = 10_000


class Places:
    """Lends places to one event loop's tasks."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._line: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        return sum(not turn.done() for turn in self._line)

    async def take(self) -> None:
        """Waits for a place. Raises `SandboxError` when too many do, `SandboxClosed` at `close`."""
        if self._free:
            self._free -= 1
            return
        if len(self._line) >= WAITING_MAX:
            raise SandboxError(
                f"{WAITING_MAX} callers wait for a sandbox already.", fix="ask for fewer at once."
            )
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # taken out of the line already
                    self._line.remove(turn)
            elif turn.exception() is None:
                # Cancelled in the same moment as it was its turn: the place goes to the next.
                self.give()
            raise

    def give(self) -> None:
        """Gives a place back, to the next in line."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():  # else its owner was cancelled and has left
                turn.set_result(None)
                return
        self._free += 1

    def close(self) -> None:
        """Tells all in line that the pool was closed."""
        for turn in self._line:
            if not turn.done():
                turn.set_exception(SandboxClosed("the pool was closed."))
