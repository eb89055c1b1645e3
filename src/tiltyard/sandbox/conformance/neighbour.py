"""The neighbour: a sandbox beside the attacked one, whose own work must go on all the while.

It has a file that only it should see and a program that counts on. While a case runs it is asked
again and again for both, and now and then a newcomer is made beside, because an attack that keeps
others from starting is harm as well. How long things take is recorded, and over `Patience` it is
called late: harm too, but of a kind that a busy machine does without anybody's fault, so a case for
which nothing else speaks is let loose once more.
"""

import asyncio
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import ExecResult, SandboxSpec
from tiltyard.sandbox.conformance.boxes import Box, Maker
from tiltyard.sandbox.conformance.host import tasks_below

SETTLE_S = 25.0
"""Before any attack nobody is judged by time."""
RUN_TIMEOUT_S = 60.0
"""Longer than anybody waits here: not answering is to be told from being ended."""
TICK_S = 0.02
BEAT_RETRY_S = 0.02
PULSE_S = 0.05
NEWCOMER_EVERY = 4
"""Pulses for each newcomer."""
COUNTING = "i=0; while :; do i=$((i+1)); echo $i > beat; sleep 0.05; done"
COUNTING_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How late others may be beside a case; more is an outage."""

    host_ms: float = 2_000.0
    """This process itself, which must never have to wait for a sandbox."""
    neighbour_s: float = 5.0
    """The neighbour, for a file, a program and now and then a newcomer."""


PATIENCE = Patience()


class Neighbour:
    """One sandbox that minds its own business."""

    def __init__(
        self, maker: Maker, box: Box, spec: SandboxSpec, *, patience: Patience = PATIENCE
    ) -> None:
        """`spec` is what `box` was made from, and newcomers are."""
        self._maker = maker
        self._spec = spec
        self.box = box
        self.secret = secrets.token_hex(16)
        self.harm: list[str] = []
        self.beats = 0
        self.lag_ms = 0.0
        self.answer_ms = 0.0
        """By how much this process was late, and how long an answer took, at the most."""
        self.tasks_max = 0
        self._patience = patience
        self._silences: list[str] = []
        self._counting: asyncio.Task[ExecResult] | None = None
        self._watching: tuple[asyncio.Task[None], ...] = ()
        self._stop = asyncio.Event()

    async def settle_in(self, group: asyncio.TaskGroup) -> None:
        """Starts its own work, and sees that it goes on."""
        await self.box.write("own", self.secret)
        argv = ["sh", "-c", COUNTING, f"neighbour-{self.secret}"]
        counting = self.box.run(argv, timeout_s=COUNTING_TIMEOUT_S)
        self._counting = group.create_task(counting)
        await self._counts_on(SETTLE_S)
        if problems := [*self.harm, *self._silences]:
            raise SandboxError(f"the neighbour does not work before any attack: {problems[0]}")

    def watch(self, group: asyncio.TaskGroup) -> None:
        """Begins to ask it, again and again, until `last_look`."""
        self._before = tasks_below(os.getpid())
        # From now, and not from when the task first runs: the attack may hold that up already.
        due_s = asyncio.get_running_loop().time() + TICK_S
        self._watching = tuple(map(group.create_task, (self._pulse(), self._tick(due_s))))

    async def last_look(self) -> None:
        """Ends the asking with one more whole look, after the attack."""
        self._stop.set()
        for each in self._watching:
            await each
        await self._look(newcomer=True)
        await self._counts_on(self._patience.neighbour_s)

    @property
    def late(self) -> tuple[str, ...]:
        """What took longer than there is patience for."""
        silences = tuple(dict.fromkeys(self._silences))
        if self.lag_ms <= self._patience.host_ms:
            return silences
        return (*silences, f"the host itself stood still for {self.lag_ms / 1000:.1f} s")

    async def leave(self) -> None:
        """Destroys it, with its work."""
        await self.box.close()
        if self._counting is not None:
            # Whether it ends with a result or an error for the lost sandbox is the provider's way.
            with suppress(SandboxError):
                await self._counting

    async def _pulse(self) -> None:
        loop = asyncio.get_running_loop()
        turn = 0
        while not self._stop.is_set():
            await self._pause(loop.time() + PULSE_S)
            self.tasks_max = max(self.tasks_max, tasks_below(os.getpid()) - self._before)
            await self._look(newcomer=turn % NEWCOMER_EVERY == 0)
            turn += 1

    async def _tick(self, due_s: float) -> None:
        """Sees how late this process is, whatever the neighbour is being asked meanwhile."""
        loop = asyncio.get_running_loop()
        while not self._stop.is_set():
            await self._pause(due_s)
            self.lag_ms = max(self.lag_ms, (loop.time() - due_s) * 1000)
            due_s = loop.time() + TICK_S

    async def _pause(self, until_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until_s):
                await self._stop.wait()

    async def _look(self, *, newcomer: bool) -> None:
        loop = asyncio.get_running_loop()
        asked_s = loop.time()
        try:
            async with asyncio.timeout(self._patience.neighbour_s):
                told = (await self.box.read("own")).decode("utf-8", "replace")
                done = await self.box.run(["cat", "own"], timeout_s=RUN_TIMEOUT_S)
                if newcomer:
                    await self._newcomer()
        except TimeoutError:
            self._silences.append(
                f"the neighbour did not answer for {self._patience.neighbour_s:.1f} s"
            )
        except SandboxError as error:
            self.harm.append(f"the neighbour was hit: {error.message}")
        else:
            if told != self.secret or done.stdout.text != self.secret:
                self.harm.append(f"the neighbour's file or program was hit: {done.reason}")
            self.beats += 1
        self.answer_ms = max(self.answer_ms, (loop.time() - asked_s) * 1000)
        if self._ended:
            self.harm.append("the neighbour's own program was ended")

    @property
    def _ended(self) -> bool:
        """Whether its own program has ended, which it does not by itself."""
        return self._counting is not None and self._counting.done()

    async def _newcomer(self) -> None:
        """Others can still be made. A refusal is an error of `_look`'s."""
        box = await self._maker.create(self._spec)
        try:
            done = await box.run(["sh", "-c", "echo here"], timeout_s=RUN_TIMEOUT_S)
            if done.stdout.text != "here\n":
                self.harm.append(f"a new sandbox does not work: {done.reason} {done.detail}")
        finally:
            await box.close()

    async def _counts_on(self, patience_s: float) -> None:
        """Waits until its own program has counted on."""
        try:
            async with asyncio.timeout(patience_s):
                first = last = await self._count()
                while last in {first, b""} and not self._ended:
                    last = await self._count_later()
        except TimeoutError:
            self._silences.append("the neighbour's own program does not go on")
        except SandboxError as error:
            self.harm.append(f"the neighbour was hit: {error.message}")

    async def _count_later(self) -> bytes:
        await asyncio.sleep(BEAT_RETRY_S)
        return await self._count()

    async def _count(self) -> bytes:
        if not any(entry.name == "beat" for entry in await self.box.list()):
            return b""
        return await self.box.read("beat")
