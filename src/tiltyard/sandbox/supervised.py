"""A sandbox, as its user holds it: every request is spoken with the supervisor inside.

When the control socket ends, everything that waits is told `SandboxDied`, an execution becomes a
result with reason `sandbox_died`, and every later call raises. Deadlines are kept inside by the
supervisor, and a second time here: a supervisor that does not answer loses its sandbox.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from tiltyard.core.changes import FileChange
from tiltyard.core.errors import SandboxClosed, SandboxDied, SandboxError
from tiltyard.core.execution import MIB, Enforcement, ExecResult, Limit, SandboxSpec
from tiltyard.core.files import WORKSPACE, Entry
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.ending import Ending, Overdue, Usage, ending_of, ending_of_lost
from tiltyard.sandbox.files import READ_BYTES_MAX, Files
from tiltyard.sandbox.hold import Hold
from tiltyard.sandbox.protocol import (
    CHUNK_BYTES_MAX,
    FrameType,
    ProgramLimits,
    RawExit,
    SpawnFlag,
    limits_field,
    spawn_body,
)
from tiltyard.sandbox.snapshots import Snapshot, parse_changes
from tiltyard.sandbox.supervisor import Execution, Supervisor

OUTPUT_BYTES_MAX = 16 * MIB
DEADLINE_GRACE_S = 5.0
"""How much later than the supervisor the host ends an execution, sandbox and all."""
TIMEOUT_S_MAX = 7 * 24 * 3600.0
CPU_S_MAX = 7 * 24 * 3600
OUTPUT_BYTES_MOST = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """How an execution ended, and what is known about it from outside."""

    ending: Ending
    raw: RawExit | None
    """The supervisor's facts; None when the sandbox was lost."""
    cpu_s: float
    """By the cgroup, with everything that the program started; else by the main process."""
    memory_peak_bytes: int


class Sandbox:
    """One isolated place. Used by one owner; closed exactly once, by whoever acquired it."""

    def __init__(
        self,
        *,
        id_: SandboxId,
        spec: SandboxSpec,
        supervisor: Supervisor,
        isolation: str,
        enforced: Mapping[Limit, Enforcement],
        environment: Mapping[str, str],
        hold: Hold,
        ends_s: float,
    ) -> None:
        """`ends_s`: when, on the loop's clock, the node will end it."""
        self.id = id_
        self.spec = spec
        self.isolation = isolation
        self.enforced = MappingProxyType(dict(enforced))
        self.environment = MappingProxyType(dict(environment))
        """What programs see unless `env` says otherwise."""
        self._supervisor = supervisor
        self._hold = hold
        self._closed = False
        self._ends_s = ends_s
        self.files = Files(id_=id_, supervisor=supervisor, check_open=self._check_open)
        """Its files, for as long as it lives."""

    @property
    def time_left_s(self) -> float:
        """How long until the node ends it, at the latest."""
        return self._ends_s - asyncio.get_running_loop().time()

    @property
    def alive(self) -> bool:
        return not self._closed and not self._supervisor.lost.done()

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        cpu_s: int = 0,
        stdin: bytes = b"",
        cwd: str = WORKSPACE,
        env: Mapping[str, str] | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> ExecResult:
        """Runs a program to its end and tells how it went; never raises for a failing program.

        It is over when the main process ends, even if a child still holds its output. At
        `timeout_s` it is killed with all that it started, and what it wrote is kept; when nothing
        else is being run beside it, with all that runs in the sandbox, so that nothing can hide.
        `cpu_s` bounds each process's CPU time, 0 does not; `env` adds to the sandbox's environment.
        Cancelling kills the program.

        Raises `SandboxClosed` after close, `SandboxDied` when it was lost before, and `ValueError`
        for an empty argv, a NUL byte, more than 1 MiB of stdin or of arguments, or a bad limit.
        """
        self._check_open()
        variables = {**self.environment, **(env or {})}
        words = (*argv, cwd, *variables, *variables.values())
        if not argv or any("\0" in word for word in words):
            raise ValueError(f"sandbox {self.id}: argv must not be empty or hold a NUL byte")
        if not (0 < timeout_s <= TIMEOUT_S_MAX and 0 <= cpu_s <= CPU_S_MAX):
            raise ValueError(f"sandbox {self.id}: timeout_s {timeout_s}, cpu_s {cpu_s}")
        if not 0 <= output_bytes_max <= OUTPUT_BYTES_MOST:
            raise ValueError(f"sandbox {self.id}: output_bytes_max {output_bytes_max}")
        if len(stdin) > CHUNK_BYTES_MAX:
            raise ValueError(f"sandbox {self.id}: stdin is over 1 MiB; write a file instead")
        limits = self.program_limits(
            wall_s=timeout_s, cpu_s=cpu_s, output_bytes_max=output_bytes_max
        )
        body = spawn_body(
            argv=argv, env=variables, cwd=cwd, stdin=stdin, limits=limits, flags=SpawnFlag.NONE
        )
        before = self._hold.read_usage(reset_peak=self._supervisor.running == 0)
        execution = self._supervisor.execution()
        self._supervisor.send(FrameType.SPAWN, execution.id, body)
        return self._result(execution, await self.settle(execution, limits=limits, before=before))

    def program_limits(
        self, *, wall_s: float, cpu_s: int = 0, output_bytes_max: int = OUTPUT_BYTES_MAX
    ) -> ProgramLimits:
        """The limits of one program under this sandbox's spec."""
        by_process = self.enforced[Limit.MEMORY] is not Enforcement.CGROUP
        # The supervisor counts as one of them. A cgroup's refusals are counted, those of the limit
        # of each process are not: where there is a cgroup, it must be the first to refuse.
        spare = 8 if self.enforced[Limit.PIDS] is Enforcement.CGROUP else 1
        return ProgramLimits(
            wall_s=wall_s,
            cpu_s=cpu_s,
            output_bytes_max=output_bytes_max,
            open_files=self.spec.limits.open_files,
            processes=self.spec.limits.pids + spare,
            address_space_bytes=self.spec.limits.memory_bytes if by_process else 0,
        )

    def start(
        self, argv: Sequence[str], *, flags: SpawnFlag, limits: ProgramLimits, cwd: str = "/"
    ) -> Execution:
        """Starts a program with a channel, or a zygote, and returns at once."""
        self._check_open()
        execution = self._supervisor.execution()
        body = spawn_body(
            argv=argv, env=self.environment, cwd=cwd, stdin=b"", limits=limits, flags=flags
        )
        self._supervisor.send(FrameType.SPAWN, execution.id, body)
        return execution

    def fork(self, zygote: Execution, *, limits: ProgramLimits) -> Execution:
        """Has a zygote fork a run, and returns at once."""
        self._check_open()
        execution = self._supervisor.execution()
        body = struct.pack("<I", zygote.id) + limits_field(limits)
        self._supervisor.send(FrameType.FORK, execution.id, body)
        return execution

    async def settle(
        self, execution: Execution, *, limits: ProgramLimits, before: Usage
    ) -> Settled:
        """Waits for an execution's end and decides what it meant.

        `before` is a reading from before its start. Whatever happens here, the program is not left
        running.
        """
        loop = asyncio.get_running_loop()
        due = max(execution.started_s + limits.wall_s, loop.time()) + DEADLINE_GRACE_S
        overdue = False
        raw = None
        try:
            async with asyncio.timeout_at(due if limits.wall_s else None):
                raw = await asyncio.shield(execution.ended)
        except TimeoutError:
            overdue = True
        except asyncio.CancelledError:
            execution.kill()
            raise
        after = self._hold.read_usage(reset_peak=False)
        cpu_s = (
            None
            if before.cpu_s is None or after.cpu_s is None
            else max(after.cpu_s - before.cpu_s, 0.0)
        )
        if raw is not None:
            ending = ending_of(raw, before=before, after=after, cpu_limit_s=limits.cpu_s)
        else:
            busy = Overdue(
                since_start_s=loop.time() - execution.started_s,
                cpus=self.spec.limits.cpus,
                cpu_used_s=cpu_s,
            )
            last = await self._last_usage(after)
            ending = ending_of_lost(before=before, after=last, overdue=busy if overdue else None)
        peak = after.memory_peak_bytes or 0
        if raw is not None and peak <= (before.memory_peak_bytes or 0):
            # An earlier peak, which not every kernel lets us start anew: the main process's own.
            peak = raw.memory_peak_bytes
        return Settled(
            ending=ending,
            raw=raw,
            cpu_s=cpu_s if cpu_s is not None else raw.cpu_s if raw else 0.0,
            memory_peak_bytes=peak,
        )

    async def _last_usage(self, after: Usage) -> Usage:
        """Gives a lost sandbox up, and asks what was counted until it was gone."""
        self._supervisor.abort()
        self._hold.destroy()
        with suppress(SandboxError):  # whoever closes it is told that it does not go
            await self._hold.gone()
        last = self._hold.read_usage(reset_peak=False)
        return replace(after, oom_kills=max(after.oom_kills, last.oom_kills))

    def memory_bytes(self) -> int | None:
        """What the sandbox holds now, files included; None where no cgroup counts it."""
        return self._hold.read_memory_bytes()

    def usage(self) -> Usage:
        """Readings of the sandbox's cgroup, from outside."""
        return self._hold.read_usage(reset_peak=False)

    async def kill(self) -> None:
        """Kills every program in the sandbox; the sandbox itself stays."""
        self._check_open()
        self._supervisor.send(FrameType.KILL, 0)
        await self._supervisor.request(FrameType.PING, b"")

    async def ping(self) -> None:
        """Returns when the supervisor answers. Raises `SandboxDied` when it does not."""
        self._check_open()
        await self._supervisor.request(FrameType.PING, b"")

    async def write(self, path: str, content: bytes | str, *, mode: int = 0o644) -> None:
        """As `files.write`."""
        await self.files.write(path, content, mode=mode)

    async def read(self, path: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """As `files.read`."""
        return await self.files.read(path, bytes_max=bytes_max)

    async def list(self, path: str = WORKSPACE) -> tuple[Entry, ...]:
        """As `files.list`."""
        return await self.files.list(path)

    async def snapshot(self) -> Snapshot:
        """Freezes the files as they are; programs stand still meanwhile, then the sandbox goes on.

        `/dev/shm`, sockets and what programs hold in memory are no part of it. Raises
        `SandboxError` when it would be too big, too deep, or one too many.
        """
        self._check_open()
        async with self._paused():
            return await self._hold.snapshot(self.spec)

    async def diff(self) -> tuple[FileChange, ...]:
        """What the files differ in from the start, or from the snapshot that it was made from.

        Sorted by path. What was only touched is not listed, nor what lies in `/dev/shm`. Raises
        `SandboxError`, also over 100,000 changes.
        """
        self._check_open()
        async with self._paused():
            return parse_changes(await self._hold.changes())

    @asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        with self.files.still():
            await self._supervisor.request(FrameType.PAUSE, b"")
            try:
                yield
            finally:
                with suppress(SandboxDied):  # then there is nothing to go on
                    await asyncio.shield(self._supervisor.request(FrameType.RESUME, b""))

    async def close(self) -> None:
        """Destroys the sandbox, and waits until nothing of it is left; idempotent.

        Cancelling stops only the wait. Raises `SandboxError` when that takes too long.
        """
        self.destroy()
        await self._hold.gone()

    def destroy(self) -> None:
        """Kills the sandbox with all that runs in it, at once and without waiting; idempotent."""
        self._closed = True
        self._supervisor.abort()
        self._hold.destroy()

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxClosed(f"sandbox {self.id} was closed.", fix="acquire a new one.")
        if self._supervisor.lost.done():
            over = f": its lifetime of {self.spec.lifetime_s:.0f} s is over"
            raise SandboxDied(
                f"sandbox {self.id} has ended{over if self.time_left_s <= 0 else ''}.",
                fix="acquire a new one.",
            )

    def _result(self, execution: Execution, settled: Settled) -> ExecResult:
        ending = settled.ending
        return ExecResult(
            reason=ending.reason,
            exit_code=ending.exit_code,
            signal=ending.signal,
            stdout=execution.stdout.result(),
            stderr=execution.stderr.result(),
            wall_s=settled.raw.wall_s
            if settled.raw
            else asyncio.get_running_loop().time() - execution.started_s,
            cpu_s=settled.cpu_s,
            memory_peak_bytes=settled.memory_peak_bytes,
            detail=ending.detail,
            isolation=self.isolation,
            enforced=self.enforced,
        )
