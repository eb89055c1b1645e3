"""The synchronous twin of `tiltyard.sandbox.supervised.Sandbox`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from tiltyard.core.changes import FileChange
from tiltyard.core.execution import Enforcement, ExecResult, Limit, Pty, SandboxSpec, Stdin
from tiltyard.core.files import WORKSPACE, Entry
from tiltyard.core.ids import ProcessId, SandboxId
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.files import READ_BYTES_MAX
from tiltyard.sandbox.orders import OUTPUT_BYTES_MAX
from tiltyard.sandbox.supervised import Sandbox as AsyncSandbox
from tiltyard.sync.twin import Twin
from tiltyard.sync.twins.egress import Egress
from tiltyard.sync.twins.files import Files
from tiltyard.sync.twins.process import Process
from tiltyard.sync.twins.snapshot import Snapshot


class Sandbox(Twin[AsyncSandbox]):
    """One isolated place. Used by one owner; closed exactly once, by whoever acquired it."""

    @property
    def id(self) -> SandboxId:
        return self._real.id

    @property
    def spec(self) -> SandboxSpec:
        return self._real.spec

    @property
    def isolation(self) -> str:
        return self._real.isolation

    @property
    def enforced(self) -> Mapping[Limit, Enforcement]:
        return self._real.enforced

    @property
    def environment(self) -> Mapping[str, str]:
        """What programs see unless `env` says otherwise."""
        return self._real.environment

    @property
    def egress(self) -> Egress | None:
        """What went out and what was refused; None without a way out."""
        return None if self._real.egress is None else Egress(self._real.egress, self._portal)

    @property
    def files(self) -> Files:
        """Its files, for as long as it lives."""
        return Files(self._real.files, self._portal)

    @property
    def time_left_s(self) -> float:
        """How long until the node ends it, at the latest."""
        return self._read(lambda: self._real.time_left_s)

    @property
    def alive(self) -> bool:
        return self._read(lambda: self._real.alive)

    def run(
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
        return self._call(
            lambda: self._real.run(
                argv,
                timeout_s=timeout_s,
                cpu_s=cpu_s,
                idle_s=idle_s,
                stdin=stdin,
                cwd=cwd,
                env=env,
                user=user,
                output_bytes_max=output_bytes_max,
            )
        )

    def spawn(
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
        it = self._call(
            lambda: self._real.spawn(
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
        )
        return Process(it, self._portal)

    def stream(
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
    ) -> AbstractContextManager[Process]:
        """A program to be watched, for the length of a block: killed at the end of that.

        `for chunk in process.chunks()` ends when the program does, and then `process.wait()`
        tells at once how that was. Whoever leaves the block early leaves nothing running.
        """
        return self._around(
            lambda: self._real.stream(
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
            ),
            Process,
        )

    def processes(self) -> tuple[Process, ...]:
        """The programs that run, oldest first; not what they left in the background."""
        it = self._read(self._real.processes)
        return tuple(Process(each, self._portal) for each in it)

    def process(self, id_: ProcessId) -> Process:
        """A program by its id: a running one, or one of the last that were spawned and have ended.

        Its `chunks()` begin with what is kept, so whoever attaches anew misses nothing more than
        that. Raises `ProcessUnknown`.
        """
        it = self._read(lambda: self._real.process(id_))
        return Process(it, self._portal)

    def memory_bytes(self) -> int | None:
        """What the sandbox holds now, files included; None where no cgroup counts it."""
        return self._read(self._real.memory_bytes)

    def pids(self) -> int | None:
        """How many processes and threads run in it; None where no cgroup counts them."""
        return self._read(self._real.pids)

    def usage(self) -> Usage:
        """Readings of the sandbox's cgroup, from outside."""
        return self._read(self._real.usage)

    def kill(self) -> None:
        """Kills every program in the sandbox; the sandbox itself stays."""
        self._call(self._real.kill)

    def ping(self) -> None:
        """Returns when the supervisor answers. Raises `SandboxDied` when it does not."""
        self._call(self._real.ping)

    def write(self, path: str, content: bytes | str, *, mode: int = 0o644) -> None:
        """As `files.write`."""
        self._call(lambda: self._real.write(path, content, mode=mode))

    def read(self, path: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """As `files.read`."""
        return self._call(lambda: self._real.read(path, bytes_max=bytes_max))

    def list(self, path: str = WORKSPACE) -> tuple[Entry, ...]:
        """As `files.list`."""
        return self._call(lambda: self._real.list(path))

    def snapshot(self) -> Snapshot:
        """Freezes the files as they are; programs stand still meanwhile, then the sandbox goes on.

        `/dev/shm`, sockets and what programs hold in memory are no part of it. Raises
        `SandboxError` when it would be too deep or one too many, or when all snapshots would hold
        more than a quarter of the memory that this process may have; nothing is left of it then.
        """
        it = self._call(self._real.snapshot)
        return Snapshot(it, self._portal)

    def diff(self) -> tuple[FileChange, ...]:
        """What the files differ in from the start, or from the snapshot that it was made from.

        Snapshots that were made of it since do not count.
        Sorted by path. What was only touched is not listed, nor what lies in `/dev/shm`. Raises
        `SandboxError`, also over 100,000 changes or 32 MiB of paths.
        """
        return self._call(self._real.diff)

    def close(self) -> None:
        """Destroys the sandbox, and waits until nothing of it is left; idempotent.

        Cancelling stops only the wait. Raises `SandboxError` when that takes too long.
        """
        self._call(self._real.close)

    def destroy(self) -> None:
        """Kills the sandbox with all that runs in it, at once and without waiting; idempotent."""
        self._read(self._real.destroy)
