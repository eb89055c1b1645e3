"""A sandbox's way out ends with it: no connection, descriptor or task is left, however it ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.egress import LOOPBACK, CountingResolver, Server, allowing, connect_to, echo, serving
from sandbox.processes import launchers, supervisors
from tiltyard.core.errors import SandboxClosed, SandboxError
from tiltyard.core.execution import ExecResult, SandboxSpec
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.network.variables import PORT
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

LOOPBACK_RULE = f"{LOOPBACK}:*"


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def until(condition: Callable[[], object]) -> None:
    """Lets the loop turn until a condition holds; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0)


@asynccontextmanager
async def talking(sandbox: Sandbox, server: Server) -> AsyncIterator["asyncio.Task[ExecResult]"]:
    """A program with a tunnel to a server, for as long as the sandbox lives."""
    source = (
        "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); "
        "s.sendall(bytes.fromhex(sys.argv[2])); s.recv(100); s.recv(100)"
    )
    request = connect_to(LOOPBACK, server.port).hex()
    async with asyncio.TaskGroup() as group:
        argv = ["python3", "-ISc", source, str(PORT), request]
        running = group.create_task(sandbox.run(argv, timeout_s=100))
        egress = sandbox.egress
        assert egress is not None
        await until(lambda: egress.counts.allowed)
        yield running


@pytest.mark.slow
@pytest.mark.parametrize("end", ["close", "destroy", "supervisor", "launcher", "provider"])
async def test_nothing_is_left_open_however_it_ends(
    image: Image, spec: SandboxSpec, end: str
) -> None:
    async with serving(echo) as server:
        before = descriptors()
        provider = NativeProvider(image=image, resolver=CountingResolver({}))
        async with provider:
            opened = descriptors()
            network = replace(allowing(LOOPBACK_RULE), bandwidth_up_bytes_s=10**8)
            sandbox = await provider.create(replace(spec, network=network))
            async with talking(sandbox, server) as running:
                match end:
                    case "close":
                        await sandbox.close()
                    case "destroy":
                        sandbox.destroy()
                    case "supervisor":
                        os.kill(supervisors()[0], signal.SIGKILL)
                    case "launcher":
                        os.kill(launchers()[0], signal.SIGKILL)
                    case _:
                        await provider.aclose()
                await asyncio.wait((running,))
            if end in {"close", "destroy", "supervisor"}:
                await sandbox.close()
                # The server's end of the tunnel is this process's too, and closes by itself.
                await until(lambda: descriptors() == opened)
            egress = sandbox.egress
            assert egress is not None
            await until(lambda: not egress.counts.open)
            assert egress.counts.allowed == 1
            with pytest.raises(SandboxClosed):
                await egress.bandwidth()
        await until(lambda: descriptors() == before)
        with pytest.raises(SandboxError):
            await sandbox.ping()


async def test_a_cancelled_creation_leaves_nothing(image: Image, spec: SandboxSpec) -> None:
    before = descriptors()
    async with NativeProvider(image=image) as provider:
        wanted = replace(spec, network=allowing(LOOPBACK_RULE))
        for turns in range(0, 60, 3):
            async with asyncio.TaskGroup() as group:
                making = group.create_task(provider.create(wanted))
                for _ in range(turns):
                    await asyncio.sleep(0)
                making.cancel()
            if not making.cancelled():
                await making.result().close()
        await until(lambda: not supervisors())
    assert descriptors() == before
