"""Moving bytes between a program and a server, on plain sockets.

Plain sockets and no transports: nothing is buffered here beyond one chunk each way, so a program
that does not read stops its server, and a server that does not read stops its program. Each
direction ends for itself. Whoever calls closes the sockets.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from tiltyard.sandbox.network.sharing import Turns
from tiltyard.sandbox.network.waiting import readable

CHUNK_BYTES = 65_536
LINGER_BYTES_MAX = 1024 * 1024
LINGER_TIMEOUT_S = 1.0

Count = Callable[[int], None]


class Inlet:
    """What a program sends, read with bounds before anything is connected."""

    def __init__(self, near: socket.socket) -> None:
        self.socket = near
        self._held = bytearray()

    async def first(self) -> bytes:
        """The first byte, which stays to be read; empty at the end."""
        return bytes(self._held[:1]) if self._held or await self._more() else b""

    async def take(self, count: int) -> bytes:
        """Exactly so many bytes. Raises `EOFError` when they do not come."""
        while len(self._held) < count:
            if not await self._more():
                raise EOFError
        taken = bytes(self._held[:count])
        del self._held[:count]
        return taken

    async def take_through(self, mark: bytes, *, bytes_max: int) -> bytes:
        """All up to the end of a mark. Raises `EOFError`, and `OverflowError` at the bound."""
        searched = 0
        while (at := self._held.find(mark, searched)) < 0:
            searched = max(len(self._held) - len(mark) + 1, 0)
            if len(self._held) >= bytes_max:
                raise OverflowError
            if not await self._more():
                raise EOFError
        if at + len(mark) > bytes_max:
            raise OverflowError
        return await self.take(at + len(mark))

    def take_held(self, count: int | None = None) -> bytes:
        """What has come already and was not taken; `count` at most."""
        held = bytes(self._held[:count])
        del self._held[: len(held)]
        return held

    async def _more(self) -> bool:
        received = await asyncio.get_running_loop().sock_recv(self.socket, CHUNK_BYTES)
        self._held += received
        return bool(received)


class Relay:
    """One program and the server that it was connected to."""

    def __init__(
        self,
        inlet: Inlet,
        far: socket.socket,
        *,
        up: Count,
        down: Count,
        idle_s: float,
        turns: Turns,
    ) -> None:
        """`idle_s` is how long nothing may come in either direction."""
        self._turns = turns
        self._inlet = inlet
        self._near = inlet.socket
        self._far = far
        self._up = up
        self._down = down
        self._idle_s = idle_s
        self._idle = asyncio.timeout(idle_s)

    async def tunnel(self) -> None:
        """Both ways, until both have ended, one has broken off, or nothing has come for long."""
        try:
            async with self._idle, asyncio.TaskGroup() as group:
                await self._pass(self._inlet.take_held(), self._far, self._up)
                group.create_task(self._pump(self._near, self._far, self._up))
                group.create_task(self._pump(self._far, self._near, self._down))
        except* OSError:
            pass

    async def exchange(self, head: bytes, body_bytes: int) -> None:
        """One request of a known length, and its answer to the server's end of stream."""
        try:
            async with self._idle, asyncio.TaskGroup() as group:
                asking = group.create_task(self._ask(head, body_bytes))
                await self._pump(self._far, self._near, self._down)
                asking.cancel()
            await linger(self._near)
        except* OSError:
            pass

    async def _ask(self, head: bytes, body_bytes: int) -> None:
        await self._pass(head, self._far, self._up)
        held = self._inlet.take_held(body_bytes)
        await self._pass(held, self._far, self._up)
        left = body_bytes - len(held)
        while left:
            received = await self._receive(self._near, min(left, CHUNK_BYTES))
            if not received:
                raise ConnectionAbortedError  # in the middle of its body
            left -= len(received)
            await self._pass(received, self._far, self._up)
        # What comes now is a second request, or the other half of a smuggled one.
        if self._inlet.take_held() or await self._receive(self._near, CHUNK_BYTES):
            raise ConnectionAbortedError

    async def _pump(self, source: socket.socket, sink: socket.socket, count: Count) -> None:
        while received := await self._receive(source, CHUNK_BYTES):
            await self._pass(received, sink, count)
        with suppress(OSError):  # it has gone altogether
            sink.shutdown(socket.SHUT_WR)

    async def _receive(self, source: socket.socket, count: int) -> bytes:
        while True:
            await self._turns.mine()
            try:
                return source.recv(count)
            except BlockingIOError:
                await readable(source)

    async def _pass(self, received: bytes, sink: socket.socket, count: Count) -> None:
        loop = asyncio.get_running_loop()
        if received:
            await loop.sock_sendall(sink, received)
            count(len(received))
            self._idle.reschedule(loop.time() + self._idle_s)


async def linger(near: socket.socket) -> None:
    """Lets a program read its answer: closed with something unread, a socket drops what it sent."""
    loop = asyncio.get_running_loop()
    left = LINGER_BYTES_MAX
    with suppress(OSError):
        near.shutdown(socket.SHUT_WR)
        async with asyncio.timeout(LINGER_TIMEOUT_S):
            while left > 0 and (received := await loop.sock_recv(near, CHUNK_BYTES)):
                left -= len(received)
