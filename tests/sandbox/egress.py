"""What the tests of the network talk to: a server, a resolver that counts, and a proxy without a
sandbox around it."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

from tiltyard.core.execution import Network, NetworkMode
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.network.addresses import Address
from tiltyard.sandbox.network.proxy import PATIENCE, Patience, Proxies, Served
from tiltyard.sandbox.network.rules import rules_of
from tiltyard.sandbox.network.sharing import Places

LOOPBACK = "127.0.0.1"
ALLOWED = "allowed.example"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class CountingResolver:
    """Knows a few names, and which names it was asked for."""

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self.names = dict(names)
        self.asked: list[str] = []
        self.closed = False

    async def resolve(self, name: str) -> tuple[Address, ...]:
        self.asked.append(name)
        return tuple(map(ip_address, self.names.get(name, ())))

    def close(self) -> None:
        self.closed = True


class Server:
    """A server on the host's loopback that keeps what it was sent."""

    def __init__(self, serve: Serve | None) -> None:
        self._serve = serve or self._answer
        self.heads: list[bytes] = []
        self.rest = b""
        self.port = 0

    async def handle_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other side broke off
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One HTTP answer that says which server answers; then reads on to the end."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        length = next(
            (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")),
            0,
        )
        body = await reader.readexactly(length)
        answer = b"body " + body if body else b"hello"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n" % len(answer))
        writer.write(b"Connection: close\r\n\r\n" + answer)
        await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
            self.rest += await reader.read()


@asynccontextmanager
async def serving(
    serve: Serve | None = None, *, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(serve)
    listening = await asyncio.start_server(server.handle_one, LOOPBACK, 0, ssl=tls)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends everything back, and closes its half when the other one is closed."""
    while received := await reader.read(65_536):
        writer.write(received)
        await writer.drain()
    writer.write_eof()


def connect_to(host: str, port: int) -> bytes:
    return f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1")


def allowing(*rules: str) -> Network:
    return Network(mode=NetworkMode.ALLOW, allow=rules)


class Gate:
    """A proxy that listens on the host's loopback, for the test to be its program."""

    def __init__(self, served: Served, port: int, resolver: CountingResolver) -> None:
        self.served = served
        self.port = port
        self.resolver = resolver

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def ask(self, *sent: bytes) -> bytes:
        """Sends, closes its half, and reads to the end."""
        async with self.connected() as (reader, writer):
            for block in sent:
                writer.write(block)
            await writer.drain()
            writer.write_eof()
            return await reader.read()


def listening() -> socket.socket:
    made = socket.socket()
    made.bind((LOOPBACK, 0))
    made.listen()
    return made


@asynccontextmanager
async def gate(
    network: Network,
    names: Mapping[str, Sequence[str]] | None = None,
    *,
    places: Places | None = None,
    patience: Patience = PATIENCE,
) -> AsyncIterator[Gate]:
    resolver = CountingResolver(names or {})
    proxies = Proxies(resolver, places=places, patience=patience)
    await proxies.open()
    try:
        listener = listening()
        port = listener.getsockname()[1]
        yield Gate(proxies.start(SandboxId("s1"), listener, rules_of(network)), port, resolver)
    finally:
        await proxies.aclose()
        assert resolver.closed
