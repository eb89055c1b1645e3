"""The egress proxy against programs that try everything; the test is the program."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from ipaddress import ip_address
from pathlib import Path

import pytest

from sandbox.egress import (
    ALLOWED,
    LOOPBACK,
    CountingResolver,
    allowing,
    connect_to,
    echo,
    gate,
    serving,
)
from tiltyard.core.execution import Network, NetworkMode
from tiltyard.sandbox.network.decisions import KEPT_MAX, Form
from tiltyard.sandbox.network.outward import is_own
from tiltyard.sandbox.network.proxy import CONNECTIONS_MAX, Patience
from tiltyard.sandbox.network.requests import HEAD_BYTES_MAX
from tiltyard.sandbox.network.resolver import SystemResolver
from tiltyard.sandbox.network.rules import Cause
from tiltyard.sandbox.network.sharing import DESCRIPTORS_EACH, PLACES_MAX, Pace, Places, places_here


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    before = descriptors()
    yield
    assert descriptors() == before


def socks_to(host: bytes, port: int, *, kind: int = 3) -> bytes:
    length = bytes((len(host),)) if kind == 3 else b""
    return b"\5\1\0" + b"\5\1\0" + bytes((kind,)) + length + host + struct.pack(">H", port)


async def until(condition: Callable[[], object]) -> None:
    """Lets the loop turn until a condition holds; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0)


async def test_a_tunnel_carries_both_ways_and_closes_by_halves() -> None:
    async with serving(echo) as server, gate(allowing(f"{LOOPBACK}:*")) as proxy:
        answer = await proxy.ask(connect_to(LOOPBACK, server.port), b"x" * 300_000)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head == b"HTTP/1.1 200 Connection established"
        assert body == b"x" * 300_000
        (decision,) = proxy.served.log.decisions
        assert (decision.allowed, decision.cause, decision.form) == (
            True,
            Cause.RULE,
            Form.CONNECT,
        )
        assert (decision.address, decision.port) == (LOOPBACK, server.port)
        assert decision.sandbox_id == "s1"
        counts = proxy.served.log.counts
        assert (counts.allowed, counts.denied) == (1, 0)
        assert (counts.up_bytes, counts.down_bytes) == (300_000, 300_000)


async def test_socks_by_name_and_by_address() -> None:
    network = allowing(f"{ALLOWED}:*", f"{LOOPBACK}:*")
    async with serving(echo) as server, gate(network, {ALLOWED: [LOOPBACK]}) as proxy:
        for host, kind in ((ALLOWED.encode(), 3), (b"127.0.0.1", 3), (b"\x7f\0\0\1", 1)):
            answer = await proxy.ask(socks_to(host, server.port, kind=kind), b"ping")
            assert answer == b"\5\0" + b"\5\0\0\1" + bytes(6) + b"ping"
        assert proxy.resolver.asked == [ALLOWED]


async def test_socks_refusals() -> None:
    network = allowing("nowhere.example")
    async with gate(network) as proxy:
        assert await proxy.ask(b"\5\1\2") == b"\5\xff"
        assert (await proxy.ask(socks_to(b"other.example", 80)))[2:4] == b"\5\2"
        assert (await proxy.ask(socks_to(b"nowhere.example", 80)))[2:4] == b"\5\4"
        assert (await proxy.ask(socks_to(b"a\0b", 80)))[2:4] == b"\5\2"
        assert (await proxy.ask(b"\5\1\0" + b"\5\3\0\1" + bytes(6)))[2:4] == b"\5\7"
        assert await proxy.ask(b"\4\1\0\x50\x7f\0\0\1\0") == b""


async def test_a_plain_request_reaches_only_what_it_was_decided_about() -> None:
    network = allowing(f"{ALLOWED}:*", f"{LOOPBACK}:*")
    async with serving() as server, gate(network, {ALLOWED: [LOOPBACK]}) as proxy:
        target = f"http://{ALLOWED}:{server.port}/path"
        answer = await proxy.ask(
            f"GET {target} HTTP/1.1\r\nHost: victim.example\r\nX: y\r\n\r\n".encode()
        )
        assert answer.endswith(b"\r\n\r\nhello")
        (head,) = server.heads
        assert (
            head
            == (
                f"GET /path HTTP/1.1\r\nHost: {ALLOWED}:{server.port}\r\nx: y\r\n"
                "Connection: close\r\n\r\n"
            ).encode()
        )
        assert proxy.served.log.decisions[0].form is Form.HTTP


async def test_a_body_is_passed_on_to_its_length_and_no_further() -> None:
    smuggled = b"GET /admin HTTP/1.1\r\nHost: victim.example\r\n\r\n"
    async with serving() as server, gate(allowing(f"{LOOPBACK}:*")) as proxy:
        head = f"POST http://{LOOPBACK}:{server.port}/ HTTP/1.1\r\nContent-Length: 7\r\n\r\n"
        assert (await proxy.ask(head.encode(), b"content")).endswith(b"body content")
        # What it gets of the first answer depends on which comes first; nothing of it goes on.
        with suppress(ConnectionResetError):
            await proxy.ask(head.encode(), b"content" + smuggled)
        assert server.rest == b""
        assert not any(b"victim" in each for each in server.heads)


async def test_requests_that_are_refused() -> None:
    async with gate(allowing("allowed.example")) as proxy:
        for status, sent in (
            (400, b"GET / HTTP/1.1\r\nHost: allowed.example\r\n\r\n"),
            (400, b"GET http://2130706433/ HTTP/1.1\r\n\r\n"),
            (400, b"CONNECT 0x7f.1:443 HTTP/1.1\r\n\r\n"),
            (403, b"GET http://other.example/ HTTP/1.1\r\nHost: allowed.example\r\n\r\n"),
            (403, b"CONNECT other.example:443 HTTP/1.1\r\nHost: allowed.example\r\n\r\n"),
            (403, b"CONNECT allowed.example:22 HTTP/1.1\r\n\r\n"),
            (403, b"CONNECT [::ffff:169.254.169.254]:80 HTTP/1.1\r\n\r\n"),
            (411, b"POST http://allowed.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"),
            (431, b"GET http://allowed.example/ HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MAX),
            (502, b"CONNECT allowed.example:443 HTTP/1.1\r\n\r\n"),
        ):
            answer = await proxy.ask(sent)
            assert answer.startswith(b"HTTP/1.1 %d " % status), (sent[:60], answer)
        assert proxy.served.log.counts.allowed == 0
        assert proxy.resolver.asked == ["allowed.example"]


async def test_a_name_that_is_not_allowed_is_never_asked_for() -> None:
    async with gate(allowing("allowed.example")) as proxy:
        for number in range(50):
            host = f"{number:032x}.tunnel.example"
            await proxy.ask(connect_to(host, 443))
            await proxy.ask(socks_to(host.encode(), 443))
            await proxy.ask(f"GET http://{host}/ HTTP/1.1\r\n\r\n".encode())
        assert proxy.resolver.asked == []
        assert proxy.served.log.counts.denied == 150
        causes = {decision.cause for decision in proxy.served.log.decisions}
        assert causes == {Cause.NAME_NOT_ALLOWED}


@pytest.mark.parametrize(
    ("address", "cause"),
    [
        (LOOPBACK, Cause.LOOPBACK),
        ("::1", Cause.LOOPBACK),
        ("::ffff:127.0.0.1", Cause.LOOPBACK),
        ("10.0.0.1", Cause.PRIVATE),
        ("169.254.169.254", Cause.METADATA),
        ("fd00:ec2::254", Cause.METADATA),
        ("fe80::1", Cause.LINK_LOCAL),
        ("0.1.2.3", Cause.UNSPECIFIED),
        ("224.0.0.1", Cause.MULTICAST),
    ],
)
@pytest.mark.parametrize("mode", [NetworkMode.ALLOW, NetworkMode.OPEN])
async def test_an_allowed_name_opens_no_network_of_ours(
    mode: NetworkMode, address: str, cause: Cause
) -> None:
    network = Network(mode=mode, allow=(ALLOWED,) if mode is NetworkMode.ALLOW else ())
    async with gate(network, {ALLOWED: [address, address]}) as proxy:
        answer = await proxy.ask(connect_to(ALLOWED, 443))
        assert answer.startswith(b"HTTP/1.1 403 ")
        (decision,) = proxy.served.log.decisions
        assert (decision.allowed, decision.cause) == (False, cause)


async def test_the_address_that_was_checked_is_the_one_connected_to() -> None:
    """A name that resolves differently the second time: there is no second time."""
    network = allowing(f"{ALLOWED}:*", f"{LOOPBACK}:*")
    async with serving(echo) as server, gate(network, {ALLOWED: [LOOPBACK]}) as proxy:
        async with proxy.connected() as (reader, writer):
            writer.write(connect_to(ALLOWED, server.port))
            assert b"200" in await reader.readuntil(b"\r\n\r\n")
            proxy.resolver.names[ALLOWED] = ["169.254.169.254"]
            writer.write(b"same connection")
            assert await reader.readexactly(15) == b"same connection"
        assert proxy.resolver.asked == [ALLOWED]
        assert (await proxy.ask(connect_to(ALLOWED, server.port))).startswith(b"HTTP/1.1 403 ")


async def test_of_several_addresses_only_the_allowed_are_tried() -> None:
    network = allowing(f"{ALLOWED}:*", f"{LOOPBACK}:*")
    names = {ALLOWED: ["169.254.169.254", "10.0.0.1", LOOPBACK]}
    async with serving(echo) as server, gate(network, names) as proxy:
        assert (await proxy.ask(connect_to(ALLOWED, server.port))).startswith(b"HTTP/1.1 200 ")
        assert [each.address for each in proxy.served.log.decisions] == [LOOPBACK]


async def test_a_server_that_is_not_there() -> None:
    with socket.socket() as unused:
        unused.bind((LOOPBACK, 0))
        port = unused.getsockname()[1]
        async with gate(allowing(f"{LOOPBACK}:*")) as proxy:
            assert (await proxy.ask(connect_to(LOOPBACK, port))).startswith(b"HTTP/1.1 502 ")
            assert (await proxy.ask(socks_to(b"127.0.0.1", port)))[2:4] == b"\5\5"


@pytest.mark.parametrize("sent", [b"", b"G", b"GET http://allowed.example/ HTTP/1.1\r\n", b"\5\1"])
async def test_a_program_that_never_asks_is_let_go(sent: bytes) -> None:
    patience = Patience(ask_s=0.05)
    async with gate(allowing("allowed.example"), patience=patience) as proxy:
        async with proxy.connected() as (reader, writer):
            writer.write(sent)
            assert await reader.read() == b""
        assert proxy.served.log.decisions == ()


async def test_an_idle_connection_ends() -> None:
    patience = Patience(idle_s=0.05)
    async with (
        serving(echo) as server,
        gate(allowing(f"{LOOPBACK}:*"), patience=patience) as proxy,
        proxy.connected() as (reader, writer),
    ):
        writer.write(connect_to(LOOPBACK, server.port))
        assert b"200" in await reader.readuntil(b"\r\n\r\n")
        assert await reader.read() == b""


async def test_a_connection_that_is_never_idle_ends_all_the_same() -> None:
    patience = Patience(total_s=0.1)
    async with (
        serving(echo) as server,
        gate(allowing(f"{LOOPBACK}:*"), patience=patience) as proxy,
        proxy.connected() as (reader, writer),
    ):
        writer.write(connect_to(LOOPBACK, server.port) + b"x")
        with suppress(ConnectionResetError):
            while received := await reader.read(100):
                writer.write(received[-1:])


async def test_a_program_that_never_reads_stops_its_server() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while True:
            writer.write(bytes(65_536))
            await writer.drain()
            sent += 65_536

    network = allowing(f"{LOOPBACK}:*")
    patience = Patience(ask_s=5, idle_s=0.2, total_s=60)
    async with serving(endless) as server, gate(network, patience=patience) as proxy:
        with socket.create_connection((LOOPBACK, proxy.port)) as program:
            program.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            program.sendall(connect_to(LOOPBACK, server.port))
            await until(lambda: proxy.served.log.counts.allowed)
            await until(lambda: not proxy.served.log.counts.open)
        assert 0 < sent < 32 * 1024 * 1024


async def test_no_more_connections_at_once_than_are_allowed() -> None:
    async with serving(echo) as server, gate(allowing(f"{LOOPBACK}:*")) as proxy:
        before = descriptors()
        programs = [
            socket.create_connection((LOOPBACK, proxy.port)) for _ in range(CONNECTIONS_MAX + 30)
        ]
        try:
            await until(lambda: proxy.served.log.counts.open >= CONNECTIONS_MAX)
            for _ in range(200):
                await asyncio.sleep(0)
            assert proxy.served.log.counts.open == CONNECTIONS_MAX
            assert descriptors() - before == len(programs) + CONNECTIONS_MAX
        finally:
            for program in programs:
                program.close()
        # Those that waited are served in their turn, and are found to have gone.
        assert (await proxy.ask(connect_to(LOOPBACK, server.port))).startswith(b"HTTP/1.1 200 ")


async def test_a_greedy_sandbox_does_not_starve_its_neighbour() -> None:
    places = Places(8)
    async with (
        serving(echo) as server,
        gate(allowing(f"{LOOPBACK}:*"), places=places) as greedy,
        gate(allowing(f"{LOOPBACK}:*"), places=places) as modest,
        AsyncExitStack() as stack,
    ):
        for _ in range(20):
            await stack.enter_async_context(greedy.connected())
        await until(lambda: greedy.served.log.counts.open == 8)
        for _ in range(5):
            assert (await modest.ask(connect_to(LOOPBACK, server.port), b"x")).endswith(b"\nx")


async def test_decisions_are_kept_to_a_bound() -> None:
    async with gate(allowing("allowed.example")) as proxy:
        log = proxy.served.log
        for number in range(KEPT_MAX + 10):
            log.decided(
                form=Form.CONNECT,
                host=f"\x1b[31m\n{number}" + "x" * 1000,
                port=1,
                allowed=False,
                cause=Cause.MALFORMED,
                address="",
            )
        assert len(log.decisions) == KEPT_MAX
        assert log.counts.denied == KEPT_MAX + 10
        assert log.decisions[-1].host.startswith(f"\\x1b[31m\\n{KEPT_MAX + 9}x")
        assert len(log.decisions[-1].host) <= 255
        assert log.decisions[-1].host.isprintable()


async def test_stopping_ends_everything_at_once() -> None:
    async with serving(echo) as server, gate(allowing(f"{LOOPBACK}:*")) as proxy:
        before = descriptors()
        async with proxy.connected() as (reader, writer), proxy.connected() as (asking, _):
            writer.write(connect_to(LOOPBACK, server.port))
            await reader.readuntil(b"\r\n\r\n")
            await until(lambda: proxy.served.log.counts.open == 2)
            proxy.served.stop()
            await proxy.served.ended()
            assert await reader.read() == b""
            assert await asking.read() == b""
        await until(lambda: descriptors() == before - 1)  # its listening socket
        proxy.served.stop()
        with pytest.raises(ConnectionRefusedError):
            await proxy.ask()


async def test_the_machines_own_addresses_are_known() -> None:
    assert is_own(ip_address("127.0.0.1"))
    assert is_own(ip_address("127.9.9.9"))
    assert not is_own(ip_address("192.0.2.1"))
    assert not is_own(ip_address("2001:db8::1"))


@pytest.mark.parametrize("kind", ["system", "counting"])
async def test_resolvers_agree(kind: str) -> None:
    resolver = SystemResolver() if kind == "system" else CountingResolver({"localhost": [LOOPBACK]})
    try:
        assert LOOPBACK in map(str, await resolver.resolve("localhost"))
        assert await resolver.resolve("x" * 64 + ".example") == ()
        assert await resolver.resolve("a..b") == ()
    finally:
        resolver.close()
        resolver.close()


def test_connections_begin_at_a_pace() -> None:
    pace = Pace(per_s=10, at_once=3)
    assert [round(pace.wait_s(100.0), 6) for _ in range(6)] == [0, 0, 0, 0.1, 0.2, 0.3]
    assert pace.wait_s(100.3) == pytest.approx(0.1)
    assert [pace.wait_s(200.0) for _ in range(3)] == [0, 0, 0]


def test_this_process_keeps_half_of_its_descriptors() -> None:
    assert 1 <= places_here() <= PLACES_MAX
    assert os.sysconf("SC_OPEN_MAX") >= 2 * DESCRIPTORS_EACH * places_here()
