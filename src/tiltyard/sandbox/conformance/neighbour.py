"""The neighbour: a sandbox beside the attacked one, whose own work must go on all the while.

It has a file that only it should see and a program that counts on. While a case runs it is asked
again and again for both, and now and then a newcomer is made beside, because an attack that keeps
others from starting is harm as well. How long things take is recorded, but only what takes as long
as an outage is called harm: a busy machine is slow without anybody's fault.
"""

import asyncio
import os
import secrets
from contextlib import suppress

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import ExecResult, SandboxSpec
from tiltyard.sandbox.conformance.boxes import Box, Maker
from tiltyard.sandbox.conformance.host import tasks_below

OUTAGE_S = 25.0
BEAT_RETRY_S = 0.02
PULSE_S = 0.05
NEWCOMER_EVERY = 4
"""Pulses for each newcomer."""
COUNTING = "i=0; while :; do i=$((i+1)); echo $i > beat; sleep 0.05; done"
COUNTING_TIMEOUT_S = 3600.0


class Neighbour:
    """One sandbox that minds its own business."""

    def __init__(self, maker: Maker, box: Box, spec: SandboxSpec) -> None:
        """`spec` is what `box` was made from, and newcomers are."""
        self._maker = maker
        self._spec = spec
        self.box = box
        self.secret = secrets.token_hex(16)
        self.harm: list[str] = []
        self.beats = 0
        self.lag_ms = 0.0
        self.tasks_max = 0
        self._counting: asyncio.Task[ExecResult] | None = None
        self._pulsing: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()

    async def settle_in(self, group: asyncio.TaskGroup) -> None:
        """Starts its own work, and sees that it goes on."""
        await self.box.write("own", self.secret)
        argv = ["sh", "-c", COUNTING, f"neighbour-{self.secret}"]
        counting = self.box.run(argv, timeout_s=COUNTING_TIMEOUT_S)
        self._counting = group.create_task(counting)
        await self._counts_on()
        if self.harm:
            raise SandboxError(f"the neighbour does not work before any attack: {self.harm[0]}")

    def watch(self, group: asyncio.TaskGroup) -> None:
        """Begins to ask it, again and again, until `last_look`."""
        self._before = tasks_below(os.getpid())
        self._pulsing = group.create_task(self._pulse())

    async def last_look(self) -> None:
        """Ends the asking with one more whole look, after the attack."""
        self._stop.set()
        if self._pulsing is not None:
            await self._pulsing
        await self._look(newcomer=True)
        await self._counts_on()

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
            due = loop.time() + PULSE_S
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._stop.wait()
            self.lag_ms = max(self.lag_ms, (loop.time() - due) * 1000)
            self.tasks_max = max(self.tasks_max, tasks_below(os.getpid()) - self._before)
            await self._look(newcomer=turn % NEWCOMER_EVERY == 0)
            turn += 1

    async def _look(self, *, newcomer: bool) -> None:
        try:
            async with asyncio.timeout(OUTAGE_S):
                told = (await self.box.read("own")).decode("utf-8", "replace")
                done = await self.box.run(["cat", "own"], timeout_s=OUTAGE_S)
                if newcomer:
                    await self._newcomer()
        except TimeoutError:
            self.harm.append(f"the neighbour did not answer for {OUTAGE_S:.0f} s")
        except SandboxError as error:
            self.harm.append(f"the neighbour was hit: {error.message}")
        else:
            if told != self.secret or done.stdout.text != self.secret:
                self.harm.append(f"the neighbour's file or program was hit: {done.reason}")
            self.beats += 1
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
            done = await box.run(["sh", "-c", "echo here"], timeout_s=OUTAGE_S)
            if done.stdout.text != "here\n":
                self.harm.append(f"a new sandbox does not work: {done.reason} {done.detail}")
        finally:
            await box.close()

    async def _counts_on(self) -> None:
        """Waits until its own program has counted on."""
        try:
            async with asyncio.timeout(OUTAGE_S):
                first = last = await self._count()
                while last in {first, b""} and not self._ended:
                    last = await self._count_later()
        except TimeoutError:
            self.harm.append("the neighbour's own program does not go on")
        except SandboxError as error:
            self.harm.append(f"the neighbour was hit: {error.message}")

    async def _count_later(self) -> bytes:
        await asyncio.sleep(BEAT_RETRY_S)
        return await self._count()

    async def _count(self) -> bytes:
        if not any(entry.name == "beat" for entry in await self.box.list()):
            return b""
        return await self.box.read("beat")
