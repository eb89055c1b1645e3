"""One connection on the yard's socket, from either side: whole frames in, whole frames out."""

import asyncio
import os
import socket
import struct
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar, cast

from tiltyard.cli.yard.wire import (
    BLOCK_BYTES,
    BODY_BYTES_MAX,
    HEADER,
    Frame,
    Kind,
    Reply,
    Request,
    WireError,
    frame,
    message_frame,
    parse_header,
)
from tiltyard.core.errors import SandboxDied

LIMIT_BYTES = BODY_BYTES_MAX + HEADER.size
"""Of what a stream keeps unread."""
T = TypeVar("T")
PART_TIMEOUT_S = 5.0
_CREDENTIALS = struct.Struct("3i")


class Connection:
    """Frames over a stream. Writing waits for a slow reader at the other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def peer(self) -> tuple[int, int]:
        """The pid and the user id at the other end, from the kernel.

        Of a listener it is the process that began to listen.
        """
        own: socket.socket = self._writer.get_extra_info("socket")
        raw = own.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(raw)
        return pid, uid

    @property
    def trusted(self) -> bool:
        """Whether the other end is of the same user."""
        return self.peer[1] == os.geteuid()

    async def receive(self) -> Frame | None:
        """The next frame; None when the other side has ended. Raises `WireError`."""
        try:
            kind, length = parse_header(await self._reader.readexactly(HEADER.size))
            return Frame(kind=kind, body=await self._reader.readexactly(length))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise WireError("the other side ended within a frame.") from None
            return None
        except ConnectionError:
            return None

    async def receive_content(self, *, bytes_max: int) -> bytes:
        """A file's bytes, up to the empty frame. Raises `WireError`, also for too many of them."""
        parts = bytearray()
        while True:
            received = await self.receive()
            if received is None or received.kind is not Kind.CONTENT:
                raise WireError("a file's content ended early.")
            if not received.body:
                return bytes(parts)
            parts += received.body
            if len(parts) > bytes_max:
                raise WireError(f"a file is over {bytes_max} bytes.")

    async def send(self, kind: Kind, body: bytes) -> None:
        """Raises `SandboxDied` when the other side has ended."""
        await self._write(frame(kind, body))

    async def say(self, message: Request | Reply) -> None:
        """Sends a message. Raises `SandboxDied` when the other side has ended."""
        await self._write(message_frame(message))

    async def send_content(self, content: bytes) -> None:
        """A file's bytes, with the empty frame after them."""
        for at in range(0, len(content), BLOCK_BYTES):
            await self.send(Kind.CONTENT, content[at : at + BLOCK_BYTES])
        await self.send(Kind.CONTENT, b"")

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """Does something, and cancels it when the other side ends or says anything meanwhile.

        Raises what the work raises, and `SandboxDied` when it was cancelled.
        """
        failed: Exception | None = None

        async def kept() -> T | None:
            nonlocal failed
            try:
                return await work
            except Exception as error:  # noqa: BLE001 - a task group would wrap it
                failed = error
                return None

        async with asyncio.TaskGroup() as group:
            doing = group.create_task(kept())
            gone = group.create_task(self.receive())
            await asyncio.wait((doing, gone), return_when=asyncio.FIRST_COMPLETED)
            doing.cancel()
            gone.cancel()
        if failed is not None:
            raise failed
        if doing.cancelled():
            raise SandboxDied("the other side of the yard's socket has ended.")
        return cast("T", doing.result())

    async def part(self) -> None:
        """Says no more, and waits for the other side's end; not for ever.

        A socket that is closed while something comes in is reset, and then the other side may not
        get to read what was said last.
        """
        with suppress(OSError, TimeoutError):
            self._writer.write_eof()
            async with asyncio.timeout(PART_TIMEOUT_S):
                while await self._reader.read(BLOCK_BYTES):
                    pass

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _write(self, raw: bytes) -> None:
        try:
            self._writer.write(raw)
            await self._writer.drain()
        except ConnectionError:
            raise SandboxDied("the other side of the yard's socket has ended.") from None
