"""The bytes of one execution on the host's side: bounded captures and the channel."""

import asyncio
from collections import deque

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import StreamCapture

HEAD_BYTES_MAX = 64 * 1024
TAIL_BYTES_MAX = 64 * 1024


class Capture:
    """Keeps the head and the tail of a stream, and counts the rest."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._total = 0

    def feed(self, block: bytes) -> None:
        self._total += len(block)
        room = HEAD_BYTES_MAX - len(self._head)
        if room > 0:
            self._head += block[:room]
            block = block[room:]
        if not block:
            return
        self._tail.append(block)
        self._tail_bytes += len(block)
        while self._tail_bytes - len(self._tail[0]) >= TAIL_BYTES_MAX:
            self._tail_bytes -= len(self._tail.popleft())

    def result(self) -> StreamCapture:
        tail = b"".join(self._tail)[-TAIL_BYTES_MAX:]
        return StreamCapture(head=bytes(self._head), tail=tail, total_bytes=self._total)


class ChannelClosed(SandboxError):
    """The program at the other end of the channel is gone, or closed it."""


class ChannelInbox:
    """Bytes that a program sent over its channel, to be taken in exact amounts.

    Bounded by the execution's output limit, which the supervisor enforces.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._closed = False
        self._arrived: asyncio.Future[None] | None = None

    def feed(self, block: bytes) -> None:
        self._buffer += block
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    def take_framed(self) -> bytes | None:
        """The next block with its u32 length in front, when all of it has come; else None."""
        end = 4 + int.from_bytes(self._buffer[:4], "little")
        if len(self._buffer) < end:
            return None
        taken = bytes(self._buffer[4:end])
        del self._buffer[:end]
        return taken

    async def take(self, count: int) -> bytes:
        """Waits for exactly `count` bytes. Raises `ChannelClosed` when they can no longer come."""
        while len(self._buffer) < count:
            if self._closed:
                raise ChannelClosed("the channel ended before the whole answer came")
            self._arrived = asyncio.get_running_loop().create_future()
            await self._arrived
        taken = bytes(self._buffer[:count])
        del self._buffer[:count]
        return taken

    def _wake(self) -> None:
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
