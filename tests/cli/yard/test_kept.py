"""What the daemon keeps, asked directly: requests that meet on their way."""

import asyncio
from types import MappingProxyType

import pytest

from tiltyard.cli.yard.kept import Kept
from tiltyard.cli.yard.wire import Create
from tiltyard.core.errors import SandboxClosed
from tiltyard.core.execution import MIB, Enforcement, Limit, NetworkMode, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

SMALL = Create(
    memory_bytes=64 * MIB,
    pids=16,
    cpus=1.0,
    open_files=64,
    disk_bytes=8 * MIB,
    inodes=1024,
    allow_unenforced=[Limit.CPU, Limit.MEMORY],
    writable=False,
    network=NetworkMode.NONE,
    allow=[],
    ttl_s=600.0,
)


class Watched:
    """A provider whose sandboxes a test can look at."""

    def __init__(self, provider: NativeProvider) -> None:
        self._provider = provider
        self.made: list[Sandbox] = []

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        sandbox = await self._provider.create(spec, for_zygotes=for_zygotes)
        self.made.append(sandbox)
        return sandbox


async def test_what_is_removed_while_it_is_made_does_not_live_on() -> None:
    async with NativeProvider() as provider, asyncio.TaskGroup() as group:
        watched = Watched(provider)
        kept = Kept(watched, group=group, lost=(), changed=lambda: None)
        making = group.create_task(refused(kept))
        await asyncio.sleep(0)
        removed = await kept.remove(None)
        error = await making
        assert removed[0].id in str(error)
        assert kept.empty
        assert not any(sandbox.alive for sandbox in watched.made)


async def test_a_network_is_made_as_it_was_asked_for() -> None:
    asked = SMALL.model_copy(
        update={
            "network": NetworkMode.ALLOW,
            "allow": ["192.0.2.7"],
            "bandwidth_up_bytes_s": 1_000_000,
            "bandwidth_down_bytes_s": 2_000_000,
        }
    )
    async with NativeProvider() as provider, asyncio.TaskGroup() as group:
        watched = Watched(provider)
        kept = Kept(watched, group=group, lost=(), changed=lambda: None)
        await kept.create(asked)
        (egress,) = (sandbox.egress for sandbox in watched.made)
        assert egress is not None
        held = await egress.bandwidth()
        assert (held.up_bytes_s, held.down_bytes_s) == (1_000_000, 2_000_000)
        await kept.remove(None)


class WithoutCgroup(Watched):
    """A provider where nothing holds a share of the CPU, and memory only each process's."""

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        sandbox = await super().create(spec, for_zygotes=for_zygotes)
        weaker = {Limit.CPU: Enforcement.NONE, Limit.MEMORY: Enforcement.RLIMIT}
        held = {**sandbox.enforced, **weaker}
        sandbox.enforced = MappingProxyType(held)
        return sandbox


async def test_what_nothing_holds_of_a_sandbox_is_in_its_row() -> None:
    async with NativeProvider() as provider, asyncio.TaskGroup() as group:
        kept = Kept(WithoutCgroup(provider), group=group, lost=(), changed=lambda: None)
        row = await kept.create(SMALL)
        assert row.unenforced == [Limit.MEMORY, Limit.CPU]
        await kept.remove(None)


async def refused(kept: Kept) -> SandboxClosed:
    with pytest.raises(SandboxClosed, match="removed while") as caught:
        await kept.create(SMALL)
    return caught.value
