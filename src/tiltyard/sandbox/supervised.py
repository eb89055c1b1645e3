"""A sandbox, as its user holds it: every request is spoken with the supervisor inside.

When the control socket ends, everything that waits is told `SandboxDied`, an execution becomes a
result with reason `sandbox_died`, and every later call raises. Deadlines are kept inside by the
supervisor, and a second time here: a supervisor that does not answer loses its sandbox.
"""

import asyncio
import errno
import os
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from tiltyard.core.errors import SandboxClosed, SandboxDied, SandboxFileError
from tiltyard.core.execution import MIB, Enforcement, ExecResult, Limit, Reason, SandboxSpec
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.ending import Ending, Usage, ending_of
from tiltyard.sandbox.protocol import (
    CHUNK_BYTES_MAX,
    Entry,
    Frame,
    FrameType,
    ProgramLimits,
    RawExit,
    SpawnFlag,
    limits_field,
    parse_bytes,
    parse_entries,
    parse_error,
    spawn_body,
    text,
)
from tiltyard.sandbox.supervisor import Execution, Supervisor

WORKSPACE = "/workspace"
OUTPUT_BYTES_MAX = 16 * MIB
READ_BYTES_MAX = 16 * MIB
DEADLINE_GRACE_S = 3.0
"""How much later than the supervisor the host ends an execution, sandbox and all."""


class ReadUsage(Protocol):
    """Reads a sandbox's cgroup from outside; `reset_peak` starts the peak of memory anew."""

    def __call__(self, *, reset_peak: bool) -> Usage: ...


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
        read_usage: ReadUsage,
        destroy: Callable[[], Awaitable[None]],
    ) -> None:
        self.id = id_
        self.spec = spec
        self.isolation = isolation
        self.enforced = MappingProxyType(dict(enforced))
        self.environment = MappingProxyType(dict(environment))
        """What programs see unless `env` says otherwise."""
        self._supervisor = supervisor
        self._read_usage = read_usage
        self._destroy = destroy
        self._closing: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self._closing is None and not self._supervisor.lost.done()

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
        `timeout_s` it is killed with all that it started, and what it wrote is kept. `cpu_s` 0 sets
        no CPU-time limit; `env` adds to the sandbox's environment. Cancelling kills the program.

        Raises `SandboxClosed` after close, `ValueError` for an empty argv or a NUL byte.
        """
        self._check_open()
        if not argv or any("\0" in word for word in (*argv, cwd)):
            raise ValueError(f"sandbox {self.id}: argv must not be empty or hold a NUL byte")
        if len(stdin) > CHUNK_BYTES_MAX:
            raise ValueError(f"sandbox {self.id}: stdin is over 1 MiB; write a file instead")
        body = spawn_body(
            argv=argv,
            env={**self.environment, **(env or {})},
            cwd=cwd,
            stdin=stdin,
            limits=self.program_limits(
                wall_s=timeout_s, cpu_s=cpu_s, output_bytes_max=output_bytes_max
            ),
            flags=SpawnFlag.NONE,
        )
        before = self._read_usage(reset_peak=self._supervisor.running == 0)
        execution = self._supervisor.execution()
        self._supervisor.send(FrameType.SPAWN, execution.id, body)
        raw = await self.end_of(execution, timeout_s=timeout_s)
        return self._result(execution, raw, before=before, cpu_s=cpu_s)

    def program_limits(
        self, *, wall_s: float, cpu_s: int = 0, output_bytes_max: int = OUTPUT_BYTES_MAX
    ) -> ProgramLimits:
        """The limits of one program under this sandbox's spec."""
        by_process = self.enforced[Limit.MEMORY] is not Enforcement.CGROUP
        return ProgramLimits(
            wall_s=wall_s,
            cpu_s=cpu_s,
            output_bytes_max=output_bytes_max,
            open_files=self.spec.limits.open_files,
            processes=self.spec.limits.pids,
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

    async def end_of(self, execution: Execution, *, timeout_s: float) -> RawExit | None:
        """Waits for an execution's end. Whatever happens here, the program is not left running."""
        try:
            async with asyncio.timeout(timeout_s + DEADLINE_GRACE_S if timeout_s else None):
                return await asyncio.shield(execution.ended)
        except TimeoutError:
            self._supervisor.abort()
            return None
        except asyncio.CancelledError:
            execution.kill()
            raise

    def usage(self) -> Usage:
        """Readings of the sandbox's cgroup, from outside."""
        return self._read_usage(reset_peak=False)

    async def kill(self) -> None:
        """Kills every program in the sandbox; the sandbox itself stays."""
        self._check_open()
        self._supervisor.send(FrameType.KILL, 0)
        await self._supervisor.request(FrameType.PING, b"")

    async def ping(self) -> None:
        """Returns when the supervisor answers. Raises `SandboxDied` when it does not."""
        self._check_open()
        await self._supervisor.request(FrameType.PING, b"")

    async def write(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        """Writes a regular file, with the directories above it; relative to the workspace.

        Raises `SandboxFileError` when the path is not a regular file or the disk is full. A write
        over 1 MiB that fails half-way leaves the part that was written.
        """
        raw = data.encode() if isinstance(data, str) else data
        for at in range(0, max(len(raw), 1), CHUNK_BYTES_MAX):
            fields = struct.pack("<II", mode, at > 0) + text(self._path(path))
            await self._file_request(
                FrameType.WRITE, fields + text(raw[at : at + CHUNK_BYTES_MAX]), path
            )

    async def read(self, path: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """Reads a whole regular file. Raises `SandboxFileError`, also over `bytes_max`."""
        parts: list[bytes] = []
        size = 0
        while True:
            fields = struct.pack("<QI", size, CHUNK_BYTES_MAX) + text(self._path(path))
            reply = await self._file_request(FrameType.READ, fields, path)
            at_end, data = parse_bytes(reply.body)
            parts.append(data)
            size += len(data)
            if size > bytes_max:
                raise SandboxFileError(
                    f"sandbox {self.id}: {path!r} is over {bytes_max} bytes.",
                    fix="raise bytes_max.",
                )
            if at_end or not data:
                return b"".join(parts)

    async def list(self, path: str = WORKSPACE) -> tuple[Entry, ...]:
        """Lists a directory, unsorted. Raises `SandboxFileError`, also when it is too long."""
        reply = await self._file_request(FrameType.LIST, text(self._path(path)), path)
        cut, entries = parse_entries(reply.body)
        if cut:
            raise SandboxFileError(f"sandbox {self.id}: {path!r} has too many names to list.")
        return entries

    async def close(self) -> None:
        """Destroys the sandbox with all that runs in it. Idempotent; not stopped by cancelling."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._supervisor.abort()
        await self._destroy()

    async def _file_request(self, type_: FrameType, body: bytes, path: str) -> Frame:
        self._check_open()
        reply = await self._supervisor.request(type_, body)
        if reply.type is FrameType.ERROR:
            code, call = parse_error(reply.body)
            full = "the disk limit is reached; " if code == errno.ENOSPC else ""
            raise SandboxFileError(
                f"sandbox {self.id}: {type_.name.lower()} {path!r}: {full}{call}: "
                f"{os.strerror(code)}"
            )
        return reply

    def _path(self, path: str) -> str:
        if not path or "\0" in path:
            raise SandboxFileError(f"sandbox {self.id}: {path!r} is not a path")
        return path if path.startswith("/") else f"{WORKSPACE}/{path}"

    def _check_open(self) -> None:
        if self._closing is not None:
            raise SandboxClosed(f"sandbox {self.id} was closed.", fix="acquire a new one.")
        if self._supervisor.lost.done():
            raise SandboxDied(f"sandbox {self.id} has ended.", fix="acquire a new one.")

    def _result(
        self, execution: Execution, raw: RawExit | None, *, before: Usage, cpu_s: int
    ) -> ExecResult:
        after = self._read_usage(reset_peak=False)
        if raw is None:
            oom = after.oom_kills > before.oom_kills
            ending = Ending(
                reason=Reason.OOM if oom else Reason.SANDBOX_DIED, exit_code=None, signal=None
            )
        else:
            ending = ending_of(raw, before=before, after=after, cpu_limit_s=cpu_s)
        by_cgroup = before.cpu_s is not None and after.cpu_s is not None
        cpu_used_s = (
            (after.cpu_s or 0.0) - (before.cpu_s or 0.0) if by_cgroup else raw.cpu_s if raw else 0.0
        )
        return ExecResult(
            reason=ending.reason,
            exit_code=ending.exit_code,
            signal=ending.signal,
            stdout=execution.stdout.result(),
            stderr=execution.stderr.result(),
            wall_s=raw.wall_s if raw else 0.0,
            cpu_s=max(cpu_used_s, 0.0),
            memory_peak_bytes=after.memory_peak_bytes or (raw.memory_peak_bytes if raw else 0),
            detail=ending.detail,
            isolation=self.isolation,
            enforced=self.enforced,
        )
