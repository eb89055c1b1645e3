"""A sandbox, as its user holds it: every request is spoken with the supervisor inside.

When the control socket ends, everything that waits is told `SandboxDied`, an execution becomes a
result with reason `sandbox_died` or `outcome_unknown`, and every later call raises. Programs are
started in `processes`, and their deadlines kept in `course`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import MappingProxyType

from tiltyard.core.changes import FileChange
from tiltyard.core.errors import SandboxClosed, SandboxDied
from tiltyard.core.execution import Enforcement, ExecResult, Limit, Pty, SandboxSpec, Stdin
from tiltyard.core.files import WORKSPACE, Entry
from tiltyard.core.ids import ProcessId, SandboxId
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.files import READ_BYTES_MAX, Files
from tiltyard.sandbox.hold import Hold
from tiltyard.sandbox.network.decisions import Egress
from tiltyard.sandbox.orders import OUTPUT_BYTES_MAX, Order
from tiltyard.sandbox.processes import Process
from tiltyard.sandbox.programs import Programs
from tiltyard.sandbox.protocol import FrameType
from tiltyard.sandbox.snapshots import Snapshot, parse_changes
from tiltyard.sandbox.supervisor import Supervisor


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
        egress: Egress | None = None,
    ) -> None:
        """`ends_s`: when, on the loop's clock, the node will end it."""
        self.id = id_
        self.spec = spec
        self.isolation = isolation
        self.enforced = MappingProxyType(dict(enforced))
        self.environment = MappingProxyType(dict(environment))
        """What programs see unless `env` says otherwise."""
        self.egress = egress
        """What went out and what was refused; None without a way out."""
        self._supervisor = supervisor
        self._hold = hold
        self._closed = False
        self._pausing = asyncio.Lock()
        self._ends_s = ends_s
        self.programs = Programs(
            sandbox_id=id_,
            spec=spec,
            supervisor=supervisor,
            hold=hold,
            isolation=isolation,
            enforced=self.enforced,
            environment=self.environment,
        )
        """What it runs; for this room's own use."""
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
        idle_s: float | None = None,
        stdin: bytes = b"",
        cwd: str = WORKSPACE,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> ExecResult:
        """Runs a program to its end and tells how it went; never raises for a failing program.

        As `spawn`, with `stdin` given as a whole, and waiting for it. Cancelling kills the program.
        """
        self._check_open()
        order = Order(
            argv=argv,
            timeout_s=timeout_s,
            cpu_s=cpu_s,
            idle_s=idle_s,
            stdin=stdin,
            cwd=cwd,
            env=env,
            user=user,
            output_bytes_max=output_bytes_max,
        )
        process = self.programs.start(order, keep=False)
        try:
            return await process.wait()
        finally:
            process.ask_end()

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float | None = None,
        cpu_s: int = 0,
        idle_s: float | None = None,
        stdin: bytes | Stdin = b"",
        cwd: str = WORKSPACE,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        pty: Pty | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> Process:
        """Starts a program and returns at once; it runs on whether anybody waits for it or not.

        It is over when its main process ends, even if a child still holds its output. After
        `timeout_s` (None: with its sandbox), `idle_s` without output (None: however long), or too
        much output, it is killed with all that it started, and what it wrote is kept; when nothing
        else is being run beside it, with all that runs in the sandbox, so that nothing can hide.
        `cpu_s` bounds each process's CPU time, 0 does not. `stdin` is at most 1 MiB, or
        `Stdin.STREAMED`; with a `pty` it is typed, and there is one stream of output. `env` adds
        to the sandbox's environment. `user` is a number, or a name in the sandbox's own
        /etc/passwd; None is its root.

        Raises `SandboxClosed` after close, `SandboxDied` when it was lost before, `SandboxRefused`
        for a user that it cannot have, and `ValueError` for an empty argv, a NUL byte, what is no
        string or no bytes, more than 1 MiB of stdin or of arguments, or a bad limit.
        """
        self._check_open()
        order = Order(
            argv=argv,
            timeout_s=timeout_s,
            cpu_s=cpu_s,
            idle_s=idle_s,
            stdin=stdin,
            cwd=cwd,
            env=env,
            user=user,
            pty=pty,
            output_bytes_max=output_bytes_max,
        )
        return self.programs.start(order, keep=True)

    @asynccontextmanager
    async def stream(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        cpu_s: int = 0,
        idle_s: float | None = None,
        stdin: bytes | Stdin = b"",
        cwd: str = WORKSPACE,
        env: Mapping[str, str] | None = None,
        user: str | int | None = None,
        pty: Pty | None = None,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
    ) -> AsyncIterator[Process]:
        """A program to be watched, for the length of a block: killed at the end of that.

        `async for chunk in process.chunks()` ends when the program does, and then `process.wait()`
        tells at once how that was. Whoever leaves the block early leaves nothing running.
        """
        process = await self.spawn(
            argv,
            timeout_s=timeout_s,
            cpu_s=cpu_s,
            idle_s=idle_s,
            stdin=stdin,
            cwd=cwd,
            env=env,
            user=user,
            pty=pty,
            output_bytes_max=output_bytes_max,
        )
        try:
            yield process
        finally:
            await process.kill()

    def processes(self) -> tuple[Process, ...]:
        """The programs that run, oldest first; not what they left in the background."""
        return self.programs.running

    def process(self, id_: ProcessId) -> Process:
        """A program by its id: a running one, or one of the last that were spawned and have ended.

        Its `chunks()` begin with what is kept, so whoever attaches anew misses nothing more than
        that. Raises `ProcessUnknown`.
        """
        return self.programs.find(id_)

    def memory_bytes(self) -> int | None:
        """What the sandbox holds now, files included; None where no cgroup counts it."""
        return self._hold.read_memory_bytes()

    def pids(self) -> int | None:
        """How many processes and threads run in it; None where no cgroup counts them."""
        counted = self._hold.read_pids()
        return None if counted is None else max(counted - 1, 0)  # the supervisor is none of them

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
        `SandboxError` when it would be too deep or one too many, or when all snapshots would hold
        more than a quarter of the memory that this process may have; nothing is left of it then.
        """
        self._check_open()
        made: Snapshot | None = None
        try:
            async with self._paused():
                made = await self._hold.snapshot(self.spec)
        except BaseException:
            if made is not None:  # and nobody will ever hold it
                await asyncio.shield(made.drop())
            raise
        return made

    async def diff(self) -> tuple[FileChange, ...]:
        """What the files differ in from the start, or from the snapshot that it was made from.

        Snapshots that were made of it since do not count.
        Sorted by path. What was only touched is not listed, nor what lies in `/dev/shm`. Raises
        `SandboxError`, also over 100,000 changes or 32 MiB of paths.
        """
        self._check_open()
        async with self._paused():
            raw = await self._hold.changes()
        return await asyncio.to_thread(parse_changes, raw)  # it may take half a second

    @asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        # One at a time: the end of the first would wake the programs under the second.
        async with self._pausing:
            with self.programs.standing_still(), self.files.still():
                try:
                    await self._supervisor.request(FrameType.PAUSE, b"")
                    yield
                finally:  # also when the wait for the pause was cancelled: it comes all the same
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
