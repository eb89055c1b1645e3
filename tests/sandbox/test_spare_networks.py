"""A network namespace that is used again tells nothing of who had it before."""

import subprocess
import sys
from dataclasses import replace

import pytest

from sandbox.successors import successor, told
from tiltyard.core.execution import Network, NetworkMode, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox


async def next_in(provider: NativeProvider, spec: SandboxSpec, network: str) -> Sandbox:
    """A sandbox in the network of one that has ended; others may lie ready before it."""

    async def has_it(sandbox: Sandbox) -> bool:
        return await told(sandbox, NETWORK) == network

    return await successor(provider, spec, has_it)


NETWORK = """
import socket
SO_NETNS_COOKIE = 71  # a number that no other namespace ever has
print(socket.socket(socket.AF_UNIX).getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8).hex())
"""
COUNT = """
import socket
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
try:
    sender.sendto(b"x", ("192.0.2.1", 9))
except OSError:
    pass
"""
"""A message in the kernel's counters, which everybody in the same namespace could read."""
COUNTED = "print(open('/proc/net/snmp').read())"
IN_FLIGHT = """
import array, socket
one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
kept = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
kept.bind("\\0left behind")
kept.listen()
for end, passed in ((one, (other, kept)), (other, (one,))):
    fds = array.array("i", [each.fileno() for each in passed])
    end.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
"""
"""Sockets that hold each other, which end only when the kernel looks for such."""

JOINED = """
import socket, struct, time
held = []
for group in range(9):
    held.append(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
    address = socket.inet_pton(socket.AF_INET6, f"ff05::{group + 16:x}")
    held[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, address + struct.pack("I", 1))
print("joined", flush=True)
time.sleep(60)
"""
COUNTED_LATER = """
import time
time.sleep(0.2)  # the kernel reports left groups 10 ms after their socket's end
print(open("/proc/net/snmp6").read())
"""


async def test_an_untouched_network_is_used_again(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    seen = []
    for _ in range(6):
        sandbox = await provider.create(spec)
        seen.append(await told(sandbox, NETWORK))
        await sandbox.close()
    assert len(set(seen)) < len(seen)


@pytest.mark.parametrize("source", [COUNT, IN_FLIGHT], ids=["counted", "in-flight"])
async def test_no_network_tells_what_was_done_in_it_before(
    provider: NativeProvider, spec: SandboxSpec, source: str
) -> None:
    for _ in range(6):
        sandbox = await provider.create(spec)
        before = await told(sandbox, COUNTED)
        await told(sandbox, source)
        await sandbox.close()
        fresh = await provider.create(spec)
        assert await told(fresh, COUNTED) == before
        await told(fresh, "import socket; socket.socket(socket.AF_UNIX).bind('\\0left behind')")
        await fresh.close()


async def test_groups_that_a_killed_program_was_in_are_not_told_to_the_next(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """Their reports would be counted when the network had been found untouched already."""
    fresh = await provider.create(spec)
    untouched = await told(fresh, COUNTED_LATER)
    await fresh.close()
    for _ in range(3):
        sandbox = await provider.create(spec)
        network = await told(sandbox, NETWORK)
        joined = await sandbox.spawn(["python3", "-I", "-S", "-c", JOINED])
        await anext(aiter(joined.chunks()))
        await sandbox.close()
        fresh = await next_in(provider, spec, network)
        assert await told(fresh, COUNTED_LATER) == untouched
        await fresh.close()


async def test_a_network_that_was_touched_is_not_used_again(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    seen = set()
    for count in range(1, 6):
        sandbox = await provider.create(spec)
        seen.add(await told(sandbox, NETWORK))
        assert len(seen) == count
        await told(sandbox, COUNT)
        await sandbox.close()


FEW_DESCRIPTORS = """
import asyncio, resource
from tiltyard.core.execution import Limit, Limits, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider

async def main():
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
    spec = SandboxSpec(limits=Limits(open_files=64), allow_unenforced={Limit.CPU, Limit.MEMORY})
    async with NativeProvider() as provider:
        print(len([await provider.create(spec) for _ in range(50)]))

asyncio.run(main())
"""


def test_networks_leave_descriptors_for_sandboxes() -> None:
    """To tell whether one is untouched takes seven of the launcher's."""
    made = subprocess.run(
        [sys.executable, "-c", FEW_DESCRIPTORS], capture_output=True, text=True, check=False
    )
    assert made.stdout == "50\n", made.stderr


async def test_a_network_with_a_loopback_is_used_once(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    looped = replace(spec, network=Network(mode=NetworkMode.LOOPBACK))
    seen = []
    for each in (looped, spec, looped, spec):
        sandbox = await provider.create(each)
        seen.append(await told(sandbox, NETWORK))
        await sandbox.close()
    assert seen[0] not in seen[1:]
    assert seen[2] != seen[3]
