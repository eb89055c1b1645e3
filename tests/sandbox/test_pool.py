"""The pool: warm sandboxes, a bounded number in use, and nothing lost however a user ends."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
import pytest_asyncio

from sandbox.processes import supervisors
from tiltyard.core.errors import SandboxClosed, SandboxError, SandboxRefused
from tiltyard.core.execution import Limits, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.places import WAITING_MAX
from tiltyard.sandbox.pool import SPECS_WARM_MAX, Pool
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox


class Watched:
    """A provider that keeps account of another one's sandboxes, and can be stopped or broken."""

    def __init__(self, real: NativeProvider) -> None:
        self.real = real
        self.made: list[Sandbox] = []
        self.asked = 0
        self.error: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        self.asked += 1
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        sandbox = await self.real.create(spec, for_zygotes=for_zygotes)
        self.made.append(sandbox)
        return sandbox

    @property
    def alive(self) -> int:
        return sum(sandbox.alive for sandbox in self.made)


@pytest_asyncio.fixture
async def watched(provider: NativeProvider) -> AsyncIterator[Watched]:
    source = Watched(provider)
    yield source
    assert source.alive == 0, "a pool that is closed has closed every sandbox"


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until a condition holds; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0)


async def test_a_sandbox_is_used_once(watched: Watched, spec: SandboxSpec) -> None:
    async with Pool(watched, warm=1) as pool:
        async with pool.sandbox(spec) as first:
            await first.write("left", "behind")
        assert not first.alive
        async with pool.sandbox(spec) as second:
            assert second.id != first.id
            assert await second.list() == ()


async def test_warm_ones_are_made_ahead(watched: Watched, spec: SandboxSpec) -> None:
    async with Pool(watched, warm=2) as pool:
        async with pool.sandbox(spec):
            await until(lambda: pool.counts.warm == 2)
            waiting = {sandbox.id for sandbox in watched.made[1:]}
        watched.gate.clear()
        async with pool.sandbox(spec) as handed:
            assert handed.id in waiting, "no new one was waited for"
        watched.gate.set()
        await until(lambda: pool.counts.warm == 2)
    assert pool.counts.warm == pool.counts.in_use == 0


async def test_without_warm_ones_each_is_made_on_demand(
    watched: Watched, spec: SandboxSpec
) -> None:
    async with Pool(watched, warm=0) as pool:
        assert watched.asked == 0
        async with pool.sandbox(spec), pool.sandbox(spec):
            assert watched.asked == pool.counts.created == 2
            assert pool.counts.in_use == 2
        assert watched.asked == 2


async def test_a_warm_one_that_died_is_not_handed_out(watched: Watched, spec: SandboxSpec) -> None:
    async with Pool(watched, warm=1) as pool:
        async with pool.sandbox(spec):
            await until(lambda: pool.counts.warm == 1)
        dead = watched.made[1]
        dead.destroy()
        async with pool.sandbox(spec) as sandbox:
            assert sandbox is not dead
            await sandbox.ping()


async def test_old_specs_do_not_keep_sandboxes(watched: Watched, spec: SandboxSpec) -> None:
    specs = [
        replace(spec, limits=replace(spec.limits, pids=10 + n)) for n in range(SPECS_WARM_MAX + 2)
    ]
    async with Pool(watched, warm=1) as pool:
        for each in specs:
            async with pool.sandbox(each):
                pass
        await until(lambda: pool.counts.warm == SPECS_WARM_MAX)
        await until(lambda: watched.alive == SPECS_WARM_MAX)


async def test_no_more_are_in_use_than_may_be(watched: Watched, spec: SandboxSpec) -> None:
    together = asyncio.Barrier(3)
    most = 0

    async def use(pool: Pool) -> None:
        nonlocal most
        async with pool.sandbox(spec) as sandbox, together:
            most = max(most, pool.counts.in_use)
            assert (await sandbox.run(["true"])).ok

    async with Pool(watched, in_use_max=3, warm=1) as pool, asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(use(pool))
    assert most == 3


async def test_first_come_first_served(watched: Watched, spec: SandboxSpec) -> None:
    order: list[int] = []

    async def use(pool: Pool, number: int) -> None:
        async with pool.sandbox(spec):
            order.append(number)

    async with Pool(watched, in_use_max=1, warm=0) as pool:
        held = await pool.acquire(spec)
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(use(pool, number))
            await until(lambda: pool.counts.waiting == 5)
            await pool.release(held)
    assert order == list(range(5))


async def test_who_gives_up_waiting_costs_nobody_a_place(
    watched: Watched, spec: SandboxSpec
) -> None:
    async with Pool(watched, in_use_max=1, warm=0) as pool:
        held = await pool.acquire(spec)
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(pool.acquire(spec)) for _ in range(3)]
            await until(lambda: pool.counts.waiting == 3)
            waiting[0].cancel()
            await until(lambda: pool.counts.waiting == 2)
            # The second one is cancelled in the very turn in which it gets its place.
            release = group.create_task(pool.release(held))
            await until(lambda: pool.counts.waiting == 1)
            waiting[1].cancel()
            await release
            third = await waiting[2]
        assert waiting[0].cancelled()
        assert waiting[1].cancelled()
        await pool.release(third)
        async with pool.sandbox(spec):
            assert pool.counts.in_use == 1


async def test_cancelling_while_one_is_made_gives_the_place_back(
    watched: Watched, spec: SandboxSpec
) -> None:
    async with Pool(watched, in_use_max=1, warm=0) as pool:
        watched.gate.clear()
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(pool.acquire(spec))
            await until(lambda: watched.asked == 1)
            asking.cancel()
        watched.gate.set()
        async with pool.sandbox(spec):
            pass


@pytest.mark.slow
async def test_cancelling_at_any_moment_leaves_nothing(
    watched: Watched, provider: NativeProvider, spec: SandboxSpec
) -> None:
    """Cancels after 0, 1, 2, ... turns of the loop, until the acquiring is through by itself."""
    turns = 0
    while True:
        async with Pool(provider, in_use_max=1, warm=1) as pool:
            async with asyncio.TaskGroup() as group:
                asking = group.create_task(pool.acquire(spec))
                for _ in range(turns):
                    await asyncio.sleep(0)
                asking.cancel()
            if not asking.cancelled():
                await pool.release(asking.result())
            async with asyncio.timeout(10), pool.sandbox(spec) as sandbox:
                await sandbox.ping()
        if not asking.cancelled():
            break
        turns += 1 + turns // 20


async def test_a_provider_that_fails(watched: Watched, spec: SandboxSpec) -> None:
    watched.error = SandboxRefused("no more of them today")
    async with Pool(watched, in_use_max=1, warm=2) as pool:
        for _ in range(3):
            with pytest.raises(SandboxRefused, match="today"):
                await pool.acquire(spec)
        assert pool.counts.in_use == 0
        watched.error = None
        async with pool.sandbox(spec):
            pass


@pytest.mark.parametrize("error", [SandboxError("refused"), OSError("unforeseen")])
async def test_warm_ones_that_fail_harm_nobody(
    watched: Watched, spec: SandboxSpec, error: Exception
) -> None:
    async with Pool(watched, warm=3) as pool:
        async with pool.sandbox(spec) as sandbox:
            watched.error = error
            await until(lambda: watched.asked == 4)
            assert (await sandbox.run(["true"])).ok
        watched.error = None
        async with pool.sandbox(spec):
            await until(lambda: pool.counts.warm == 3)


async def test_closing_destroys_those_in_use(watched: Watched, spec: SandboxSpec) -> None:
    async with Pool(watched, warm=1) as pool:
        sandbox = await pool.acquire(spec)
        await until(lambda: pool.counts.warm == 1)
    assert not sandbox.alive
    await pool.release(sandbox)
    with pytest.raises(SandboxClosed):
        await pool.acquire(spec)


async def test_closing_tells_those_who_wait(watched: Watched, spec: SandboxSpec) -> None:
    async with asyncio.TaskGroup() as group:
        async with Pool(watched, in_use_max=1, warm=0) as pool:
            await pool.acquire(spec)
            waiting = group.create_task(expect_closed(pool, spec))
            await until(lambda: pool.counts.waiting == 1)
        assert await waiting


async def test_closing_while_one_is_made(watched: Watched, spec: SandboxSpec) -> None:
    async with asyncio.TaskGroup() as group:
        async with Pool(watched, warm=0) as pool:
            watched.gate.clear()
            asking = group.create_task(expect_closed(pool, spec))
            await until(lambda: watched.asked == 1)
        watched.gate.set()
        assert await asking


async def expect_closed(pool: Pool, spec: SandboxSpec) -> bool:
    with pytest.raises(SandboxClosed):
        await pool.acquire(spec)
    return True


async def fail_inside(pool: Pool, spec: SandboxSpec) -> None:
    async with pool:
        await pool.acquire(spec)
        raise ZeroDivisionError


async def test_an_error_in_the_block_is_raised_as_it_is(
    watched: Watched, spec: SandboxSpec
) -> None:
    with pytest.raises(ZeroDivisionError):
        await fail_inside(Pool(watched, warm=3), spec)


async def test_cancelling_the_block_closes_the_pool(watched: Watched, spec: SandboxSpec) -> None:
    async def hold() -> None:
        async with Pool(watched, warm=2) as pool:
            await pool.acquire(spec)
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        holding = group.create_task(hold())
        await until(lambda: watched.alive > 0)
        holding.cancel()
    assert holding.cancelled()


def test_what_makes_no_sense_is_refused(image: object) -> None:
    del image
    real = NativeProvider()
    for options in ({"in_use_max": 0}, {"warm": -1}):
        with pytest.raises(ValueError, match="in_use_max"):
            Pool(real, **options)


async def test_the_line_is_bounded(watched: Watched, spec: SandboxSpec) -> None:
    async with Pool(watched, in_use_max=1, warm=0) as pool:
        held = await pool.acquire(spec)
        async with asyncio.TaskGroup() as group:
            waiting = [group.create_task(pool.acquire(spec)) for _ in range(WAITING_MAX)]
            await until(lambda: pool.counts.waiting == WAITING_MAX)
            with pytest.raises(SandboxError, match="callers wait"):
                await pool.acquire(spec)
            for task in waiting:
                task.cancel()
        await pool.release(held)


def test_equal_specs_share_what_is_warm() -> None:
    one = SandboxSpec(limits=Limits(pids=7))
    other = SandboxSpec(limits=Limits(pids=7))
    assert hash(one) == hash(other)
    assert one == other


async def test_it_tells_how_it_stands(watched: Watched, spec: SandboxSpec) -> None:
    async with Pool(watched, warm=2) as pool:
        async with pool.sandbox(spec):
            assert (pool.counts.acquired, pool.counts.found_warm) == (1, 0)
            assert pool.counts.creating == 2
            await until(lambda: pool.counts.warm == 2)
        waited_s = pool.counts.waited_s
        assert waited_s > 0
        async with pool.sandbox(spec):
            assert (pool.counts.acquired, pool.counts.found_warm) == (2, 1)
            assert pool.counts.waited_s > waited_s


@pytest.mark.slow
async def test_one_that_does_not_answer_is_not_handed_out(
    watched: Watched, spec: SandboxSpec
) -> None:
    async with Pool(watched, warm=1, checked_after_s=0.0) as pool:
        async with pool.sandbox(spec) as first:
            await until(lambda: pool.counts.warm == 1)
        await until(lambda: not pool.counts.closing)
        deaf = watched.made[1]
        (pid,) = supervisors()
        os.kill(pid, signal.SIGSTOP)
        async with pool.sandbox(spec) as sandbox:
            assert sandbox.id not in {deaf.id, first.id}
            await sandbox.ping()


@pytest.mark.slow
async def test_one_with_too_little_time_left_is_not_handed_out(
    watched: Watched, spec: SandboxSpec
) -> None:
    short = replace(spec, lifetime_s=5.0)
    async with Pool(watched, warm=1) as pool:
        async with pool.sandbox(short):
            await until(lambda: pool.counts.warm == 1)
        old = watched.made[1]
        await until(lambda: old.time_left_s < 4.4)
        async with pool.sandbox(short) as sandbox:
            assert sandbox is not old
