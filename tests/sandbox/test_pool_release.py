"""What becomes of a sandbox that a pool takes back: nobody waits for its end but the pool.

The provider here decides when a killed sandbox is gone, which the kernel lets nobody decide.
"""

import asyncio
import os
import signal

import pytest
from structlog.testing import capture_logs

from sandbox.lingering import LingeringProvider, turns, until
from sandbox.processes import launchers, supervisors
from tiltyard.core.errors import SandboxClosed, SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.supervised import Sandbox

SPEC = SandboxSpec()


async def test_release_kills_and_waits_for_nothing() -> None:
    provider = LingeringProvider()
    async with Pool(provider, warm=0) as pool:
        async with pool.sandbox(SPEC) as sandbox:
            assert sandbox.alive
        assert provider.holds[sandbox.id].destroyed
        assert not sandbox.alive
        with pytest.raises(SandboxClosed):
            await sandbox.run(["true"])
        assert (pool.counts.in_use, pool.counts.closing) == (0, 1)

        await turns()
        assert pool.counts.closing == 1
        provider.let_all_go()
        await until(lambda: not pool.counts.closing)


async def test_released_in_any_way_it_is_counted_once() -> None:
    provider = LingeringProvider()
    async with Pool(provider, in_use_max=1, warm=0) as pool:
        sandbox = await pool.acquire(SPEC)
        async with asyncio.TaskGroup() as group:
            releasing = group.create_task(release_when_cancelled(pool, sandbox))
            await asyncio.sleep(0)
            releasing.cancel()
        assert releasing.cancelled()
        await pool.release(sandbox)
        assert pool.counts.closing == 1

        provider.let_all_go()
        await until(lambda: not pool.counts.closing)
        await pool.release(sandbox)
        async with pool.sandbox(SPEC):
            assert pool.counts.in_use == 1
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await pool.acquire(SPEC)


async def release_when_cancelled(pool: Pool, sandbox: Sandbox) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await pool.release(sandbox)


async def test_the_place_is_anothers_only_when_it_is_gone() -> None:
    provider = LingeringProvider()
    async with Pool(provider, in_use_max=1, warm=0) as pool, asyncio.TaskGroup() as group:
        first = await pool.acquire(SPEC)
        asking = group.create_task(pool.acquire(SPEC))
        await pool.release(first)
        await turns()
        assert not asking.done()
        assert len(provider.holds) == 1

        provider.let_all_go()
        second = await asking
        assert (pool.counts.in_use, pool.counts.closing) == (1, 0)
        await pool.release(second)


async def test_the_next_ones_are_made_only_when_it_is_gone() -> None:
    provider = LingeringProvider()
    async with Pool(provider, warm=2) as pool:
        first, second = [await pool.acquire(SPEC) for _ in range(2)]
        await until(lambda: pool.counts.warm == 2)
        third = await pool.acquire(SPEC)
        for sandbox in (first, second, third):
            await pool.release(sandbox)
        await turns()
        assert (pool.counts.warm, pool.counts.creating, pool.counts.closing) == (1, 0, 3)

        provider.holds[second.id].let_go.set()
        await until(lambda: pool.counts.warm == 2)
        assert pool.counts.closing == 2
        provider.let_all_go()
        await until(lambda: not pool.counts.closing)


@pytest.mark.parametrize("error", [SandboxError("it is stuck"), OSError("unforeseen")])
async def test_one_that_does_not_go_is_logged_and_blocks_nobody(error: Exception) -> None:
    provider = LingeringProvider()
    with capture_logs() as logs:
        async with Pool(provider, in_use_max=2, warm=0) as pool:
            stuck, other = [await pool.acquire(SPEC) for _ in range(2)]
            await pool.release(stuck)
            await pool.release(other)
            provider.holds[other.id].let_go.set()
            await until(lambda: pool.counts.closing == 1)
            await pool.acquire(SPEC)
            assert logs == []

            provider.holds[stuck.id].error = error
            provider.let_all_go()
            await pool.acquire(SPEC)
            assert (pool.counts.in_use, pool.counts.closing) == (2, 0)
    assert [(line["event"], line["sandbox_id"], line["error"]) for line in logs] == [
        ("sandbox_close_failed", stuck.id, str(error))
    ]


async def test_closing_the_pool_kills_all_and_waits_for_all() -> None:
    provider = LingeringProvider()
    async with asyncio.TaskGroup() as group:
        pool, end = Pool(provider, warm=1), asyncio.Event()
        closing = group.create_task(open_until(end, pool))
        await turns()
        released, used = [await pool.acquire(SPEC) for _ in range(2)]
        await pool.release(released)
        await until(lambda: pool.counts.warm == 1)
        end.set()
        await turns()
        assert provider.killed == 3
        assert pool.counts.closing == 3

        for hold in list(provider.holds.values()):
            assert not closing.done()
            hold.let_go.set()
            await turns()
        assert closing.done()
    assert pool.counts.closing == 0
    await pool.release(used)


async def test_closing_the_pool_waits_also_when_it_is_cancelled() -> None:
    provider = LingeringProvider()
    async with asyncio.TaskGroup() as group:
        pool, end = Pool(provider, warm=0), asyncio.Event()
        closing = group.create_task(open_until(end, pool))
        await turns()
        for _ in range(2):
            sandbox = await pool.acquire(SPEC)
        await pool.release(sandbox)
        end.set()
        await turns()
        closing.cancel()
        await turns()
        assert not closing.done()
        assert pool.counts.closing == 2
        provider.let_all_go()
    assert closing.cancelled()
    assert pool.counts.closing == 0


async def open_until(end: asyncio.Event, pool: Pool) -> None:
    async with pool:
        await end.wait()


async def test_those_that_stay_warm_no_longer_are_waited_for_too() -> None:
    provider = LingeringProvider()
    async with Pool(provider, warm=1) as pool:
        async with pool.sandbox(SPEC):
            await until(lambda: pool.counts.warm == 1)
        pool.forget(SPEC)
        assert (pool.counts.warm, pool.counts.closing) == (0, 2)
        provider.let_all_go()
        await until(lambda: not pool.counts.closing)


@pytest.mark.sandbox
@pytest.mark.slow
async def test_a_deaf_one_found_as_the_pool_closes_fails_nobody_else(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """Whoever asks is told that the pool is closed, and not what became of the check."""
    async with asyncio.TaskGroup() as group:
        async with Pool(provider, warm=1, checked_after_s=0.0) as pool:
            async with pool.sandbox(spec):
                await until(lambda: pool.counts.warm == 1)
            await until(lambda: not pool.counts.closing)
            (deaf,) = supervisors()
            os.kill(deaf, signal.SIGSTOP)
            asking = group.create_task(expect_closed(pool, spec))
            await until(lambda: pool.counts.warm == 0)
        await asking


async def expect_closed(pool: Pool, spec: SandboxSpec) -> None:
    with pytest.raises(SandboxClosed):
        await pool.acquire(spec)


@pytest.mark.sandbox
@pytest.mark.slow
async def test_with_its_launcher_stopped_one_does_not_go_and_nobody_waits(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    """Nobody reaps it. What was done in it is kept, and it goes when the launcher goes on."""
    (launcher,) = launchers()
    with capture_logs() as logs:
        async with Pool(provider, in_use_max=1, warm=0) as pool:
            try:
                async with pool.sandbox(spec) as sandbox:
                    assert (await sandbox.run(["true"])).ok
                    os.kill(launcher, signal.SIGSTOP)
                assert not sandbox.alive
                assert pool.counts.closing == 1
                await until(lambda: not pool.counts.closing)
            finally:
                os.kill(launcher, signal.SIGCONT)
            async with pool.sandbox(spec):
                await sandbox.close()
    assert [(line["event"], line["sandbox_id"]) for line in logs] == [
        ("sandbox_close_failed", sandbox.id)
    ]
    assert supervisors() == []
