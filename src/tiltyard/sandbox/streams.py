"""The bytes of one execution on the host's side: captures, live readers, input, the channel.

All of it is bounded, and nothing here ever makes a program wait or end because a reader on this
side is slow: what became of a program must depend on the program alone. A reader that falls behind
is told how much it missed. Standard input is the exception in the other direction: it is the writer
on this side that waits for the program.
"""

import asyncio
from collections import deque

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import MIB, Chunk, Stream, StreamCapture
from tiltyard.sandbox.protocol import INPUT_WINDOW_BYTES

HEAD_BYTES_MAX = 64 * 1024
TAIL_BYTES_MAX = 64 * 1024
READER_BYTES_MAX = MIB
"""What may wait for one reader."""
PIECE_BYTES = 256
"""What a waiting piece costs beside its bytes, so that many small ones are bounded as well."""
JOINED_BYTES_MAX = 16 * 1024
"""Waiting pieces of one stream are joined up to this size."""


class Capture:
    """Keeps the head and the tail of a stream, and counts the rest."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def feed(self, block: bytes) -> None:
        self._total += len(block)
        room = HEAD_BYTES_MAX - len(self._head)
        if room > 0:
            self._head += block[:room]
            block = block[room:]
        if block:
            self._tail += block
            if len(self._tail) > 2 * TAIL_BYTES_MAX:
                del self._tail[:-TAIL_BYTES_MAX]

    def result(self) -> StreamCapture:
        tail = bytes(self._tail[-TAIL_BYTES_MAX:])
        return StreamCapture(head=bytes(self._head), tail=tail, total_bytes=self._total)


class _Piece:
    """Output that waits for a reader."""

    __slots__ = ("data", "skipped_bytes", "stream")

    def __init__(self, stream: Stream, block: bytes, skipped_bytes: int = 0) -> None:
        self.stream = stream
        self.data = bytearray(block)
        self.skipped_bytes = skipped_bytes


class Chunks:
    """What a program writes, piece by piece: first what is kept of it so far, then as it comes.

    Iterate over it with `async for`; it ends with the program. At most 1 MiB waits: whoever reads
    more slowly than the program writes misses the oldest, and each chunk says how much is missing
    before it.
    """

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._skipped: dict[Stream, int] = {}
        self._cost_bytes = 0
        self._closed = False
        self._arrived = asyncio.Event()

    def begin_with(self, stream: Stream, kept: StreamCapture) -> None:
        """Puts what a capture holds in front."""
        cut = kept.total_bytes - len(kept.head) - len(kept.tail)
        for block, skipped in ((kept.head, 0), (kept.tail, cut)):
            if block:
                self._add(_Piece(stream, block, skipped))

    def feed(self, stream: Stream, block: bytes) -> None:
        last = self._pieces[-1] if self._pieces else None
        if (
            last is not None
            and last.stream is stream
            and len(last.data) + len(block) <= JOINED_BYTES_MAX
        ):
            last.data += block
            self._cost_bytes += len(block)
        else:
            self._add(_Piece(stream, block))
        while self._cost_bytes > READER_BYTES_MAX:
            missed = self._take()
            self._skipped[missed.stream] = missed.skipped_bytes + len(missed.data)
        self._arrived.set()

    def close(self) -> None:
        self._closed = True
        self._arrived.set()

    def __aiter__(self) -> "Chunks":
        return self

    async def __anext__(self) -> Chunk:
        while not self._pieces:
            if self._closed:
                if not self._skipped:
                    raise StopAsyncIteration
                stream, skipped = self._skipped.popitem()
                return Chunk(stream=stream, data=b"", skipped_bytes=skipped)
            self._arrived.clear()
            await self._arrived.wait()
        piece = self._take()
        return Chunk(stream=piece.stream, data=bytes(piece.data), skipped_bytes=piece.skipped_bytes)

    def _add(self, piece: _Piece) -> None:
        self._pieces.append(piece)
        self._cost_bytes += len(piece.data) + PIECE_BYTES

    def _take(self) -> _Piece:
        """The oldest piece, with what was missed of its stream before it."""
        piece = self._pieces.popleft()
        self._cost_bytes -= len(piece.data) + PIECE_BYTES
        piece.skipped_bytes += self._skipped.pop(piece.stream, 0)
        return piece


class InputWindow:
    """How much of a standard input may be sent: no more than the program has made room for."""

    def __init__(self) -> None:
        self._room_bytes = INPUT_WINDOW_BYTES
        self._open = True
        self._changed = asyncio.Event()

    @property
    def open(self) -> bool:
        """False when nobody reads any more."""
        return self._open

    def taken(self, count: int) -> bool:
        """Makes room again; False when that is more than was sent."""
        self._room_bytes += count
        self._changed.set()
        return self._room_bytes <= INPUT_WINDOW_BYTES

    def close(self) -> None:
        self._open = False
        self._changed.set()

    async def reserve(self, count: int) -> int:
        """Waits for room, and takes up to `count` bytes of it. 0 when nobody reads any more."""
        while self._open and not self._room_bytes:
            self._changed.clear()
            await self._changed.wait()
        if not self._open:
            return 0
        got = min(count, self._room_bytes)
        self._room_bytes -= got
        return got


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
