"""What the provider holds of one sandbox from outside: its readings and its end."""

import asyncio
import os
import signal
from dataclasses import replace

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.ending import NOTHING_USED, Usage, used_since
from tiltyard.sandbox.footprint import Footprint
from tiltyard.sandbox.native.cgroups import (
    Readings,
    read_number,
    read_oom_kills,
    read_pids_refused,
    read_usage,
    restart_peak,
)
from tiltyard.sandbox.native.counters import CounterFiles
from tiltyard.sandbox.native.launcher import End
from tiltyard.sandbox.native.layers import Layers
from tiltyard.sandbox.native.outlet import Outlet
from tiltyard.sandbox.native.proc import footprint_below, pid_of
from tiltyard.sandbox.native.slots import Slot
from tiltyard.sandbox.offloop import in_thread
from tiltyard.sandbox.snapshots import Snapshot

DESTROY_TIMEOUT_S = 5.0


class NativeHold:
    """Kills at once, then waits: so that nothing that interrupts the waiting keeps it alive."""

    def __init__(
        self,
        sandbox_id: SandboxId,
        *,
        pidfd: int,
        gone: "asyncio.Future[End]",
        slot: Slot,
        counters: CounterFiles,
        layers: Layers,
    ) -> None:
        self._sandbox_id = sandbox_id
        self._pidfd = pidfd
        self._gone = gone
        self._slot = slot
        self._files = slot.files
        self._counters = counters
        self._layers = layers
        self._group_files: dict[int, Readings] = {}
        self._group_usage: dict[int, Usage] = {1: slot.used_first}
        self.outlet: Outlet | None = None
        """Its way out to the network; None without one."""
        gone.add_done_callback(self._end)  # also of one that nobody closes

    def read_usage(self, *, reset_peak: bool) -> Usage:
        """Reads the cgroups. After the sandbox's end only the last count of kills is left."""
        if self._gone.done():
            kills = self._gone.result().oom_kills
            return Usage(cpu_s=None, memory_peak_bytes=None, oom_kills=kills)
        now = read_usage(self._files, reset_peak=reset_peak, counters=self._counters)
        before = self._slot.used
        # v1 counts a kill only in the group of whom it met, and the last count has them all: what
        # is read before a program's start has to have them too, if it is lost with its sandbox.
        groups = self._group_files.values()
        killed = sum(read_oom_kills(files, counters=self._counters) for files in groups)
        return replace(
            now,
            cpu_s=None if now.cpu_s is None else now.cpu_s - (before.cpu_s or 0.0),
            oom_kills=now.oom_kills + killed,
            pids_refused=now.pids_refused - before.pids_refused,
        )

    def read_group(self, number: int) -> Usage:
        """What one execution used in its own cgroup, which others had before it.

        Called once at its end, before the cgroup is released to the next.
        """
        if self._gone.done():
            return Usage(cpu_s=None, memory_peak_bytes=None)
        files = self._group_files.get(number)
        if files is None:
            files = self._group_files[number] = self._files.of_group(number)
        now = read_usage(files, reset_peak=False, counters=self._counters)
        before = self._group_usage.get(number, NOTHING_USED)
        # What was written to files is still charged here: the next one's peak counts from there.
        still = restart_peak(files, counters=self._counters)
        self._group_usage[number] = replace(now, memory_peak_bytes=still)
        return used_since(before, now)

    def read_pids_refused(self) -> int:
        """How often a process was refused for want of room; a part of `read_usage`."""
        if self._gone.done():
            return 0
        refused = read_pids_refused(self._files, counters=self._counters)
        return refused - self._slot.used.pids_refused

    def read_memory_bytes(self) -> int | None:
        """What it holds now; None where no cgroup counts it, or when it is gone."""
        return read_number(self._files.memory, counters=self._counters)

    def read_pids(self) -> int | None:
        """How many processes and threads there are, its supervisor too; None as above."""
        return read_number(self._files.pids_now, counters=self._counters)

    async def footprint(self, *, generations: int) -> Footprint | None:
        """What those hold that descend from its first process by so many generations at least.

        None when it is gone.
        """
        first = pid_of(self._pidfd) if self._pidfd >= 0 else None
        if first is None:
            return None
        # A process with many mappings may keep the kernel busy for long.
        return await in_thread(lambda: footprint_below(first, generations=generations))

    async def snapshot(self, spec: SandboxSpec) -> Snapshot:
        """Freezes its files as they are. Raises `SandboxError`."""
        return await self._layers.snapshot(self._sandbox_id, spec)

    async def changes(self) -> bytes:
        """What differs in its files from what it started with. Raises `SandboxError`."""
        return await self._layers.changes(self._sandbox_id)

    def destroy(self) -> None:
        """Kills the sandbox with all that runs in it, and its connections; idempotent."""
        if self.outlet is not None:
            self.outlet.stop()
        pidfd, self._pidfd = self._pidfd, -1
        if pidfd < 0:
            return
        try:
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass  # it has ended already; what is left is to wait for its removal
        finally:
            os.close(pidfd)

    async def gone(self) -> None:
        """Returns when nothing of it is left. Raises `SandboxError` when that takes too long."""
        try:
            async with asyncio.timeout(DESTROY_TIMEOUT_S):
                await asyncio.shield(self._gone)
        except TimeoutError:
            raise SandboxError(
                f"sandbox {self._sandbox_id} was killed {DESTROY_TIMEOUT_S:.0f} s ago and is not "
                "gone. The launcher goes on trying.",
                fix="look for processes of it in uninterruptible sleep.",
            ) from None
        if self.outlet is not None:
            await self.outlet.ended()

    def _end(self, _: "asyncio.Future[End]") -> None:
        self.destroy()
        for files in self._group_files.values():
            self._counters.close(files.paths)
