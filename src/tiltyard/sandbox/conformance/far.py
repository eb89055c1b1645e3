"""The far side of a proxy: the world that sandboxes with a way out find behind it, as a witness.

It is one server on the host's loopback and one resolver, which the provider has to be opened with.
Both are the suite's own and keep what came to them, so what a program reached, and for which names
anybody was asked, is never taken from what the program printed. Nothing else is ever resolved.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from types import TracebackType
from typing import Self

LOOPBACK = "127.0.0.1"
FAR = "far.example"
"""The name of the server, the only one that cases allow besides those that rebind."""
NAMES: Mapping[str, Sequence[Sequence[str]]] = {
    FAR: [[LOOPBACK]],
    # Below this name are those of somebody who answers for a name that is allowed.
    "metadata.rebind.example": [["169.254.169.254"]],
    "metadata6.rebind.example": [["fd00:ec2::254", "::ffff:169.254.169.254"]],
    "link.rebind.example": [["169.254.1.1", "fe80::1"]],
    "private.rebind.example": [["10.0.0.1", "192.168.0.1", "172.17.0.1", "fd12::1"]],
    "door.rebind.example": [[LOOPBACK, "::1", "::ffff:127.0.0.1", "127.0.0.53"]],
    "any.rebind.example": [["0.0.0.0", "::"]],  # noqa: S104 - refused, or it would be the host
    "translated.rebind.example": [["64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1"]],
    "flips.rebind.example": [["192.0.2.1"], [LOOPBACK], ["169.254.169.254"]],
    "metadata.google.internal": [["169.254.169.254"]],
    "localhost": [[LOOPBACK, "::1"]],
}
"""For each name its answers, one after another and the last one for ever."""
HEAD_BYTES_MAX = 65_536
KEPT_MAX = 2_000
"""Connections of which something is kept; more are counted as harm by whoever asked for them."""
ASKED_MAX = 10_000
CONNECTION_TIMEOUT_S = 20.0
FLOOD_BYTES_MAX = 64 << 20
"""More than a proxy may hold for somebody who reads nothing, and no harm to a machine."""
FLOOD_BLOCK = bytes(65_536)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nfar"
FLOOD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % FLOOD_BYTES_MAX
TLS_HANDSHAKE = 0x16


class FarSide:
    """A server and a resolver of the host's own. Use with `async with`."""

    def __init__(self) -> None:
        self.port = 0
        self.asked: list[str] = []
        self.arrived: list[bytes] = []
        self.flooded_bytes = 0
        self._turns: dict[str, int] = {}
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()

    def begin(self) -> None:
        """Forgets what earlier cases did."""
        self.asked, self.arrived, self.flooded_bytes = [], [], 0
        self._turns = {}

    async def resolve(self, name: str) -> tuple[IPv4Address | IPv6Address, ...]:
        """The next answer for a name; none for one that is not of the suite."""
        if len(self.asked) < ASKED_MAX:
            self.asked.append(name)
        answers = NAMES.get(name, [[]])
        turn = self._turns.get(name, 0)
        self._turns[name] = turn + 1
        return tuple(map(ip_address, answers[min(turn, len(answers) - 1)]))

    def close(self) -> None:
        """A provider gives its resolver up; this one outlives it."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.arrived)
        if number < KEPT_MAX:
            self.arrived.append(b"")
        try:
            # The other side may break off at any time, and be slow for ever.
            with suppress(OSError):
                async with asyncio.timeout(CONNECTION_TIMEOUT_S):
                    await self._talk(number, reader, writer)
        finally:
            writer.close()

    async def _talk(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        got = b""
        while b"\r\n\r\n" not in got and len(got) < HEAD_BYTES_MAX:
            block = await reader.read(HEAD_BYTES_MAX)
            if not block:
                return
            got += block
            self._keep(number, got)
            if got[0] == TLS_HANDSHAKE:
                return  # who is greeted is what matters, and that has been kept
        if got.split(b" ", 2)[1:2] == [b"/flood"]:
            await self._flood(writer)
            return
        writer.write(ANSWER)
        await writer.drain()
        while len(got) < HEAD_BYTES_MAX and (block := await reader.read(HEAD_BYTES_MAX)):
            got += block
            self._keep(number, got)

    async def _flood(self, writer: asyncio.StreamWriter) -> None:
        """Sends as much as is taken, which a bounded proxy does not for long."""
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(FLOOD)
        sent = 0
        while sent < FLOOD_BYTES_MAX:
            writer.write(FLOOD_BLOCK)
            await writer.drain()
            sent += len(FLOOD_BLOCK)
            self.flooded_bytes = max(self.flooded_bytes, sent)

    def _keep(self, number: int, got: bytes) -> None:
        if number < len(self.arrived):
            self.arrived[number] = got
