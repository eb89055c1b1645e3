"""Names that hang: they hold up the sandbox that asks for them, and nobody else."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest

from sandbox.egress import LOOPBACK, CountingResolver, Gate, listening
from tiltyard.core.execution import Network, NetworkMode
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.network.addresses import Address
from tiltyard.sandbox.network.lookups import OWN_MAX, WAITING_MAX, Lookups, LookupsBusy
from tiltyard.sandbox.network.proxy import Patience, Proxies
from tiltyard.sandbox.network.resolver import LOOKUPS_MAX, SystemResolver
from tiltyard.sandbox.network.rules import Cause, rules_of

ONE, OTHER = SandboxId("one"), SandboxId("other")
PATIENCE_S = 0.1
"""For the look-ups that hang, so that giving one up takes no time; but enough for a thread to
answer on a machine that does other things."""
UNHURRIED_S = 60.0


class NameServer:
    """Answers at once, but for names that begin with `hang`: for those when it is let go."""

    def __init__(self) -> None:
        self.hanging: list[str] = []
        self._go = threading.Event()

    def look_up(self, name: str) -> tuple[Address, ...]:
        if name.startswith("hang"):
            self.hanging.append(name)
            self._go.wait()
        return (ip_address(LOOPBACK),)

    def let_go(self) -> None:
        self._go.set()


class Hanging:
    """Answers all when it is let go. It needs no thread, so the loop's turns tell what it holds."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.go = asyncio.Event()

    async def resolve(self, name: str) -> tuple[Address, ...]:
        self.names.append(name)
        await self.go.wait()
        return (ip_address(LOOPBACK),)

    def close(self) -> None:
        """It holds nothing."""


@asynccontextmanager
async def looking_up(
    server: NameServer, *, patience_s: float = PATIENCE_S
) -> AsyncIterator[Lookups]:
    resolver = SystemResolver(server.look_up)
    lookups = Lookups(resolver, patience_s=patience_s)
    await lookups.open()
    try:
        yield lookups
    finally:
        server.let_go()
        await lookups.aclose()
        resolver.close()


async def ask(lookups: Lookups, name: str, by: SandboxId) -> str:
    """How it went."""
    try:
        return str(*await lookups.resolve(name, by=by))
    except LookupsBusy:
        return "busy"
    except TimeoutError:
        return "too late"


async def ask_all(lookups: Lookups, by: SandboxId, count: int) -> list[str]:
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(ask(lookups, f"hang-{n}", by)) for n in range(count)]
    return sorted(each.result() for each in asking)


@pytest.mark.slow
async def test_a_look_up_that_nobody_waits_for_keeps_its_place() -> None:
    server = NameServer()
    async with looking_up(server) as lookups:
        for _ in range(2):
            await ask_all(lookups, ONE, OWN_MAX)
        assert len(server.hanging) == OWN_MAX
        assert await ask(lookups, "fine", ONE) == "busy"
        assert await ask(lookups, "fine", OTHER) == LOOPBACK


async def test_it_gives_its_place_back_when_it_ends() -> None:
    server = NameServer()
    async with looking_up(server) as lookups:
        assert await ask_all(lookups, ONE, OWN_MAX + 1) == ["busy"] + ["too late"] * OWN_MAX
        server.let_go()
        async with asyncio.timeout(10):
            while await ask(lookups, "fine", ONE) == "busy":
                pass


async def test_who_waits_begins_when_one_ends() -> None:
    server = NameServer()
    async with looking_up(server, patience_s=UNHURRIED_S) as lookups, asyncio.TaskGroup() as group:
        asking = [group.create_task(ask(lookups, f"hang-{n}", ONE)) for n in range(OWN_MAX)]
        waiting = group.create_task(ask(lookups, "fine", ONE))
        assert await ask(lookups, "fine", OTHER) == LOOPBACK
        assert not waiting.done()
        server.let_go()
        assert {await each for each in (*asking, waiting)} == {LOOPBACK}


async def test_the_greedy_get_fewer_the_fewer_are_left() -> None:
    resolver = Hanging()
    lookups = Lookups(resolver, patience_s=UNHURRIED_S)
    await lookups.open()
    held: list[int] = []
    async with asyncio.TaskGroup() as group:
        while (before := len(resolver.names)) < LOOKUPS_MAX:
            greedy = SandboxId(f"greedy-{len(held)}")
            for n in range(OWN_MAX):
                group.create_task(ask(lookups, f"hang-{n}", greedy))
            for _ in range(OWN_MAX):
                await asyncio.sleep(0)
            held.append(len(resolver.names) - before)
        resolver.go.set()
    await lookups.aclose()
    assert held == [4, 4, 4, 4, 4, 4, 4, 2, 1, 1]
    assert sum(held) == LOOKUPS_MAX


async def test_only_so_many_wait() -> None:
    server = NameServer()
    async with looking_up(server, patience_s=UNHURRIED_S) as lookups, asyncio.TaskGroup() as group:
        many = range(OWN_MAX + WAITING_MAX)
        asking = [group.create_task(ask(lookups, f"hang-{n}", ONE)) for n in many]
        await asyncio.sleep(0)
        assert await ask(lookups, "fine", ONE) == "busy", "at once"
        assert await ask(lookups, "fine", OTHER) == LOOPBACK
        server.let_go()
    assert {each.result() for each in asking} == {LOOPBACK}


async def test_who_is_cancelled_leaves_the_queue_and_not_the_place() -> None:
    server = NameServer()
    async with looking_up(server, patience_s=UNHURRIED_S) as lookups:
        async with asyncio.TaskGroup() as group:
            many = range(OWN_MAX + WAITING_MAX)
            asking = [group.create_task(ask(lookups, f"hang-{n}", ONE)) for n in many]
            await asyncio.sleep(0)
            for each in asking:
                each.cancel()
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(ask(lookups, "fine", ONE))
            assert await ask(lookups, "fine", OTHER) == LOOPBACK
            assert not waiting.done(), "its four are still held"
            server.let_go()
            assert await waiting == LOOPBACK


async def test_an_error_of_the_resolver_is_told_and_takes_no_place() -> None:
    class Broken(CountingResolver):
        async def resolve(self, name: str) -> tuple[Address, ...]:
            raise RuntimeError(name)

    lookups = Lookups(Broken({}), patience_s=UNHURRIED_S)
    await lookups.open()
    for n in range(OWN_MAX + 1):
        with pytest.raises(RuntimeError, match=f"name-{n}"):
            await lookups.resolve(f"name-{n}", by=ONE)
    await lookups.aclose()


@asynccontextmanager
async def two_gates(server: NameServer) -> AsyncIterator[list[Gate]]:
    """Two sandboxes' proxies of one provider, for the test to be their programs."""
    proxies = Proxies(SystemResolver(server.look_up), patience=Patience(resolve_s=PATIENCE_S))
    await proxies.open()
    gates = []
    for sandbox_id in (ONE, OTHER):
        listener = listening()
        port = listener.getsockname()[1]
        served = proxies.start(sandbox_id, listener, rules_of(Network(mode=NetworkMode.OPEN)))
        gates.append(Gate(served, port, CountingResolver({})))
    try:
        yield gates
    finally:
        server.let_go()
        await proxies.aclose()


@pytest.mark.slow
async def test_a_program_is_told_and_the_refusal_is_on_record() -> None:
    server = NameServer()
    async with two_gates(server) as (one, other):
        async with asyncio.TaskGroup() as group:
            for n in range(2 * OWN_MAX + 1):
                request = b"GET http://hang-%d.example/ HTTP/1.1\r\nHost: x\r\n\r\n" % n
                group.create_task(one.ask(request))
        assert len(server.hanging) == OWN_MAX
        answer = await one.ask(b"GET http://fine.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"fine.example was not looked up" in answer
        name = b"fine.example"
        socks = await one.ask(b"\x05\x01\x00", b"\x05\x01\x00\x03%c%s\x00\x50" % (len(name), name))
        assert socks[2:4] == b"\x05\x01"
        # It was looked up: loopback is what the rules refuse.
        assert b" 403 " in await other.ask(b"GET http://fine.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
        causes = [decision.cause for decision in one.served.log.decisions]
        assert causes.count(Cause.UNRESOLVED) == OWN_MAX
        assert set(causes) == {Cause.UNRESOLVED, Cause.LOOKUPS_BUSY}
        assert [decision.cause for decision in other.served.log.decisions] == [Cause.LOOPBACK]
