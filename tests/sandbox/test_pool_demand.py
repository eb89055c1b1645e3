"""A pool keeps as many warm as were asked for at once lately, and goes back to few in silence.

No test waits for time: it puts its loop's clock forward.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

import pytest

from sandbox.lingering import LingeringProvider, turns, until
from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.demand import REMEMBERED_S
from tiltyard.sandbox.fitness import CHECK_TIMEOUT_S
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.supervised import Sandbox

SPEC = SandboxSpec()
OTHER = replace(SPEC, lifetime_s=3600.0)
BURST = 32


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test puts forward."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped_s = 0.0

    def time(self) -> float:
        return super().time() + self._skipped_s

    def skip(self, seconds: float) -> None:
        self._skipped_s += seconds


class StandingLoop(SkippingLoop):
    """Its clock stands between the skips: what happens then happens at once, on any machine."""

    def time(self) -> float:
        return self._skipped_s


def standing(test: Callable[[], Coroutine[None, None, None]]) -> Callable[[], None]:
    """Runs a test with a clock that stands."""

    def run() -> None:
        with asyncio.Runner(loop_factory=StandingLoop) as runner:
            runner.run(test())

    return run


def skip(seconds: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    loop.skip(seconds)


async def acquire_at_once(pool: Pool, count: int, spec: SandboxSpec = SPEC) -> list[Sandbox]:
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(pool.acquire(spec)) for _ in range(count)]
    return [task.result() for task in asking]


async def burst(pool: Pool, count: int = BURST, spec: SandboxSpec = SPEC) -> int:
    """Acquires and releases so many, waits until the pool is at rest, and says who was warm."""
    before = pool.counts.found_warm
    for sandbox in await acquire_at_once(pool, count, spec):
        await pool.release(sandbox)
    await until(lambda: not pool.counts.closing and not pool.counts.creating)
    return pool.counts.found_warm - before


def letting_go() -> LingeringProvider:
    provider = LingeringProvider()
    provider.let_all_go()
    return provider


@pytest.mark.sandbox
@pytest.mark.slow
async def test_a_second_burst_finds_most_of_them_warm(
    provider: NativeProvider, spec: SandboxSpec
) -> None:
    async with Pool(provider, warm=4) as pool:
        assert await burst(pool, spec=spec) < BURST / 2
        assert await burst(pool, spec=spec) > BURST / 2
        assert await burst(pool, spec=spec) > BURST / 2


@pytest.mark.sandbox
@pytest.mark.slow
def test_after_silence_the_superfluous_are_destroyed(image: Image, spec: SandboxSpec) -> None:
    async def test() -> None:
        async with NativeProvider(image=image) as provider, Pool(provider, warm=4) as pool:
            await burst(pool, spec=spec)
            assert pool.counts.warm == pool.counts.target > BURST / 2
            skip(REMEMBERED_S)
            await until(lambda: pool.counts.warm == 4 and not pool.counts.closing)
            assert pool.counts.target == 4
            async with pool.sandbox(spec) as sandbox:
                assert (await sandbox.run(["true"])).ok

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(test())


@standing
async def test_what_is_remembered_is_kept_and_not_a_moment_longer() -> None:
    async with Pool(letting_go(), warm=2, checked_after_s=1e6) as pool:
        await burst(pool, 20)
        skip(REMEMBERED_S / 2)
        await burst(pool, 10)
        skip(REMEMBERED_S / 2 - 1)
        await turns()
        assert (pool.counts.warm, pool.counts.target) == (20, 20)
        skip(1)
        await turns()
        assert pool.counts.warm == pool.counts.target == 10
        skip(REMEMBERED_S / 2)
        await turns()
        assert pool.counts.warm == pool.counts.target == 2


@standing
async def test_each_spec_has_a_demand_of_its_own() -> None:
    async with Pool(letting_go(), warm=2) as pool:
        await burst(pool, 10)
        skip(REMEMBERED_S / 2)
        await burst(pool, 6, OTHER)
        assert pool.counts.warm == pool.counts.target == 16
        skip(REMEMBERED_S / 2)
        await turns()
        assert pool.counts.warm == pool.counts.target == 8
        pool.forget(OTHER)
        assert pool.counts.warm == pool.counts.target == 2


@standing
async def test_a_burst_is_made_up_for_as_it_ends_and_not_beside_its_callers() -> None:
    provider = letting_go()
    async with Pool(provider, warm=2) as pool:
        used = await acquire_at_once(pool, 8)
        await turns()
        assert (pool.counts.warm, pool.counts.target) == (2, 8)
        for ended, sandbox in enumerate(used, 1):
            await pool.release(sandbox)
            await turns()
            assert pool.counts.warm == min(2 + ended, 8)


@standing
async def test_never_more_than_the_bound() -> None:
    async with Pool(letting_go(), warm=2, warm_max=5) as pool:
        for _ in range(3):
            await burst(pool)
            assert pool.counts.warm == pool.counts.target == 5


@standing
async def test_without_warm_ones_no_burst_makes_any() -> None:
    async with Pool(letting_go(), warm=0) as pool:
        for _ in range(3):
            assert await burst(pool) == 0
        assert pool.counts.created == 3 * BURST
        assert pool.counts.warm == pool.counts.target == 0


@standing
async def test_one_caller_at_a_time_is_served_from_as_few_as_ever() -> None:
    async with Pool(letting_go(), warm=1) as pool:
        for _ in range(100):
            await burst(pool, 1)
        assert pool.counts.warm == pool.counts.target == 1
        assert pool.counts.created == 101


@standing
async def test_one_that_is_made_when_no_longer_wanted_is_not_kept() -> None:
    provider = GatedProvider()
    async with Pool(provider, warm=1) as pool:
        used = await acquire_at_once(pool, 4)
        await until(lambda: pool.counts.warm == 1)
        provider.gate.clear()
        for sandbox in used:
            await pool.release(sandbox)
        await until(lambda: pool.counts.creating == 3)
        skip(REMEMBERED_S)
        await turns()
        provider.gate.set()
        await until(lambda: not pool.counts.creating)
        assert pool.counts.warm == pool.counts.target == 1
    assert provider.killed == len(provider.holds)


class GatedProvider(LingeringProvider):
    """Makes them while the gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.let_all_go()
        self.gate = asyncio.Event()
        self.gate.set()

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        await self.gate.wait()
        return await super().create(spec, for_zygotes=for_zygotes)


@standing
async def test_those_forgotten_while_one_is_asked_are_seen_off_once() -> None:
    """Nobody answers here, so the first is found deaf when the others are on their way out."""

    provider = LingeringProvider()
    async with Pool(provider, warm=2, checked_after_s=0.0) as pool:
        used = await pool.acquire(SPEC)
        await until(lambda: pool.counts.warm == 2)
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(pool.acquire(SPEC))
            await until(lambda: pool.counts.warm == 1)
            await turns()
            pool.forget(SPEC)
            skip(CHECK_TIMEOUT_S)
            fresh = await asking
        assert pool.counts.in_use == 2
        provider.let_all_go()
        await until(lambda: not pool.counts.closing)
        assert used.alive
        assert fresh.alive
