"""Set-up that is done once and shared by content."""

import asyncio

import pytest

from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.setups import SetUp, SetUpFailed, SetUps

pytestmark = pytest.mark.sandbox

COUNTED = SetUp(
    files=(("seed", b"7"),),
    commands=(
        ("sh", "-c", "cp seed copy"),
        ("sh", "-c", "cat /proc/sys/kernel/random/uuid > made"),
    ),
)


async def made_in(pool: Pool, spec: SandboxSpec) -> bytes:
    async with pool.sandbox(spec) as sandbox:
        assert await sandbox.read("copy") == b"7"
        return await sandbox.read("made")


async def test_it_is_done_once_and_shared_by_content(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    async with Pool(provider, warm=1) as pool, SetUps(pool) as setups:

        async def use(set_up: SetUp) -> bytes:
            async with setups.prepared(spec, set_up) as ready:
                return await made_in(pool, ready)

        async with asyncio.TaskGroup() as group:
            uses = [group.create_task(use(COUNTED)) for _ in range(5)]
        assert len({task.result() for task in uses}) == 1
        other = SetUp(files=(("seed", b"7"), ("more", b"")), commands=COUNTED.commands)
        assert await use(other) != await use(COUNTED)


async def test_a_step_that_fails_is_told_with_its_output_and_done_again(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    failing = SetUp(commands=(("sh", "-c", "echo what was wrong >&2; exit 3"),))
    async with Pool(provider, warm=0) as pool, SetUps(pool) as setups:
        for _ in range(2):
            with pytest.raises(SetUpFailed, match=r"(?s)exit 3.*what was wrong"):
                async with setups.prepared(spec, failing):
                    pass
        assert pool.counts.in_use == 0


async def test_the_oldest_that_nobody_uses_goes(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    steps = [SetUp(files=(("copy", b"7"), ("made", str(i).encode()))) for i in range(3)]
    async with (
        Pool(provider, warm=0) as pool,
        SetUps(pool, kept_max=1) as setups,
        setups.prepared(spec, steps[0]) as first,
    ):
        for step in steps[1:]:
            async with setups.prepared(spec, step) as ready:
                await made_in(pool, ready)
        assert await made_in(pool, first) == b"0", "one that is in use stays"
