"""How much a sandbox can take of the network, and of the machine through it."""

import asyncio
import errno
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.egress import (
    ALLOWED,
    LOOPBACK,
    CountingResolver,
    Server,
    allowing,
    listening,
    serving,
)
from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import (
    MIB,
    Enforcement,
    Limit,
    Limits,
    Network,
    NetworkMode,
    Reason,
    SandboxSpec,
)
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.netns import Handed
from tiltyard.sandbox.native.outlet import Outlet, check_bandwidth
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.network.proxy import CONNECTIONS_MAX, Proxies
from tiltyard.sandbox.network.rules import rules_of
from tiltyard.sandbox.network.variables import PORT
from tiltyard.sandbox.supervised import Sandbox

pytestmark = [pytest.mark.sandbox, pytest.mark.slow]

RATE_BYTES_S = 2_000_000
MOVED_BYTES = 5_000_000
SPARE_BYTES = 200_000
"""What may be ahead of the rate: the bucket, and what the sockets hold."""

# Moves bytes through the proxy one way and says how long that took, by its own clock. With a third
# argument its packets carry IP options, which push the ports to where a careless filter looks not.
MOVE = f"""
import socket, sys, time
way, port, count = sys.argv[1], int(sys.argv[2]), {MOVED_BYTES}
near = socket.socket()
if len(sys.argv) > 3:
    near.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([1]) * 40)
near.connect(("127.0.0.1", {PORT}))
near.sendall(f"CONNECT {ALLOWED}:{{port}} HTTP/1.1\\r\\n\\r\\n".encode())
assert b"200" in near.recv(200)
start = time.monotonic()
near.sendall(way.encode())
if way == "u":
    near.sendall(bytes(count))
    near.shutdown(socket.SHUT_WR)
got = 0
while block := near.recv(65536):
    got += len(block)
assert way == "u" or got == count, got
print(time.monotonic() - start)
"""


@pytest.fixture
def limits() -> Limits:
    return Limits(memory_bytes=256 * MIB, pids=32, open_files=1024)


@pytest.fixture
async def provider(image: Image) -> AsyncIterator[NativeProvider]:
    async with NativeProvider(
        image=image, resolver=CountingResolver({ALLOWED: [LOOPBACK]})
    ) as opened:
        yield opened


@pytest.fixture
async def mover() -> AsyncIterator[Server]:
    """Sends or takes what a program that runs MOVE wants to move."""

    async def move(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if await reader.readexactly(1) == b"d":
            writer.write(bytes(MOVED_BYTES))
        else:
            await reader.readexactly(MOVED_BYTES)
        await writer.drain()

    async with serving(move) as server:
        yield server


def limited(*, up: int | None = None, down: int | None = None) -> Network:
    network = allowing(f"{ALLOWED}:*", f"{LOOPBACK}:*")
    return replace(network, bandwidth_up_bytes_s=up, bandwidth_down_bytes_s=down)


async def moved(sandbox: Sandbox, way: str, server: Server, *more: str) -> float:
    argv = ["python3", "-I", "-S", "-c", MOVE, way, str(server.port), *more]
    done = await sandbox.run(argv, timeout_s=60)
    assert done.ok, done.stderr.text
    return float(done.stdout.text)


async def test_bandwidth_is_held_each_way_and_read_back(
    provider: NativeProvider, spec: SandboxSpec, mover: Server
) -> None:
    network = limited(up=RATE_BYTES_S, down=2 * RATE_BYTES_S)
    sandbox = await provider.create(replace(spec, network=network))
    assert sandbox.enforced[Limit.NETWORK] is Enforcement.QDISC
    egress = sandbox.egress
    assert egress is not None
    asked = (RATE_BYTES_S, 2 * RATE_BYTES_S)
    held = await egress.bandwidth()
    assert (held.up_bytes_s, held.down_bytes_s) == asked
    for way, rate in zip("ud", asked, strict=True):
        for more in ((), ("options",)):
            took_s = await moved(sandbox, way, mover, *more)
            least_s = (MOVED_BYTES - SPARE_BYTES) / rate
            assert least_s / 1.1 <= took_s < 5 * least_s + 2, (way, more, took_s, least_s)
    # The kernel counts packets with their headers, the proxy what was in them.
    held = await egress.bandwidth()
    for packets, content in (
        (held.up_bytes, egress.counts.up_bytes),
        (held.down_bytes, egress.counts.down_bytes),
    ):
        assert 2 * MOVED_BYTES <= content < packets < 1.15 * content
    await sandbox.close()


async def test_both_ways_at_once_and_many_connections_share_it(
    provider: NativeProvider, spec: SandboxSpec, mover: Server
) -> None:
    network = limited(up=2 * RATE_BYTES_S, down=2 * RATE_BYTES_S)
    sandbox = await provider.create(replace(spec, network=network))
    start = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for way in "uudd":
            group.create_task(moved(sandbox, way, mover))
    took_s = time.monotonic() - start
    assert took_s >= (2 * MOVED_BYTES - SPARE_BYTES) / (2 * RATE_BYTES_S) / 1.1
    await sandbox.close()


async def test_what_is_not_limited_is_not_slowed(
    provider: NativeProvider, spec: SandboxSpec, mover: Server
) -> None:
    """Neither the other direction, nor what programs inside send each other."""
    sandbox = await provider.create(replace(spec, network=limited(up=4096)))
    slow_s = MOVED_BYTES / 4096
    assert await moved(sandbox, "d", mover) < slow_s / 10
    source = """
import os, socket
server = socket.create_server(("127.0.0.1", 0))
if os.fork() == 0:
    socket.create_connection(server.getsockname()).sendall(bytes(20_000_000))
    os._exit(0)
near = server.accept()[0]
print(sum(iter(lambda: len(near.recv(65536)), 0)))
"""
    done = await sandbox.run(["python3", "-I", "-S", "-c", source], timeout_s=60)
    assert done.stdout.text == "20000000\n", done.stderr.text
    await sandbox.close()


async def test_connections_inside_do_not_take_the_machines_memory(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """What sockets hold is not in every kernel's count of a sandbox's memory."""
    if provider.enforced[Limit.MEMORY] is not Enforcement.CGROUP:
        pytest.skip("without a cgroup nothing counts what a user's sockets hold")
    network = Network(mode=NetworkMode.LOOPBACK)
    sandbox = await provider.create(replace(spec, network=network))
    source = """
import contextlib, socket
server = socket.create_server(("127.0.0.1", 0), backlog=500)
held, sent = [], 0
with contextlib.suppress(OSError):
    for _ in range(480):
        near = socket.create_connection(server.getsockname(), 1)
        near.setblocking(False)
        held += [near, server.accept()[0]]
        with contextlib.suppress(BlockingIOError):
            while True:
                sent += near.send(bytes(65536))
print(sent)
"""
    done = await sandbox.run(["python3", "-I", "-S", "-c", source], timeout_s=60)
    assert done.reason is Reason.OOM or int(done.stdout.text) < spec.limits.memory_bytes
    await sandbox.close()


async def test_a_limit_that_the_kernel_does_not_hold_is_refused_unless_allowed() -> None:
    """As where it was built without htb: the child tells, and here it is decided."""
    id_, spec = SandboxId("s1"), SandboxSpec(network=limited(up=RATE_BYTES_S))
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    handed = Handed(listener=listening(), netlink=netlink, errno=errno.ENOENT, call="netlink(htb)")
    proxies = Proxies(CountingResolver({}))
    await proxies.open()
    try:
        outlet = Outlet(id_, handed, proxies=proxies, rules=rules_of(spec.network))
        assert outlet.enforced == {Limit.NETWORK: Enforcement.NONE}
        with pytest.raises(SandboxRefused, match=r"cannot enforce: network \(netlink\(htb\): No"):
            await check_bandwidth(outlet, spec, id_)
        allowed = replace(spec, allow_unenforced=frozenset({Limit.NETWORK}))
        await check_bandwidth(outlet, allowed, id_)
        # A kernel that says that all went well and holds something else is believed in no case.
        lying = Outlet(
            id_,
            replace(handed, errno=0, call="", listener=listening()),
            proxies=proxies,
            rules=rules_of(spec.network),
        )
        with pytest.raises(SandboxRefused, match="the kernel holds"):
            await check_bandwidth(lying, allowed, id_)
        for each in (outlet, lying):
            each.stop()
            await each.ended()
    finally:
        await proxies.aclose()


async def test_ten_thousand_connections_are_one_sandboxs_own_trouble(
    provider: NativeProvider, spec: SandboxSpec, mover: Server
) -> None:
    network = limited()
    flooding = await provider.create(replace(spec, network=network))
    neighbour = await provider.create(replace(spec, network=network))
    source = f"""
import socket
held = []
for number in range(10_000):
    one = socket.socket()
    one.setblocking(False)
    one.connect_ex(("127.0.0.1", {PORT}))
    held.append(one)
    if len(held) > 900:
        held.pop(0).close()
print(len(held))
"""
    descriptors = before = len(list(Path("/proc/self/fd").iterdir()))
    async with asyncio.TaskGroup() as group:
        flood = group.create_task(
            flooding.run(["python3", "-I", "-S", "-c", source], timeout_s=120)
        )
        while not flood.done():
            await moved(neighbour, "d", mover)
            descriptors = max(descriptors, len(list(Path("/proc/self/fd").iterdir())))
    assert flood.result().stdout.text == "900\n", flood.result().stderr.text
    assert descriptors - before < 2 * CONNECTIONS_MAX + 100
    assert (await flooding.run(["true"])).ok
    await moved(flooding, "u", mover)
    await flooding.close()
    await neighbour.close()
