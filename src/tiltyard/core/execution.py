"""What a sandbox is asked for and what an execution gives back.

One file holds every request and result of the sandbox API, so that providers, fakes and records
agree on it. Sizes are bytes, times are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tiltyard.core.ids import SnapshotId

MIB = 1024 * 1024


class Limit(StrEnum):
    """A resource that a sandbox bounds."""

    MEMORY = "memory"
    PIDS = "pids"
    CPU = "cpu"
    CPU_TIME = "cpu_time"
    OPEN_FILES = "open_files"
    DISK = "disk"
    INODES = "inodes"
    OUTPUT = "output"
    WALL = "wall"
    IDLE = "idle"
    """How long a program may write nothing, where it is run with such a bound."""
    NETWORK = "network"
    """Bandwidth, each direction for itself."""


class Enforcement(StrEnum):
    """By what a limit is really held. Recorded in every result, printed by `tiltyard doctor`."""

    CGROUP = "cgroup"
    RLIMIT = "rlimit"
    """Each process has its own: a tree of processes can exceed `memory` together. For `cpu_time`
    and `open_files` nothing else is meant, and of `pids` the kernel counts the whole sandbox's."""
    TMPFS = "tmpfs"
    SUPERVISOR = "supervisor"
    QDISC = "qdisc"
    """A token bucket of the kernel in the sandbox's own network namespace."""
    NONE = "none"


def open_limits(enforced: Mapping[Limit, Enforcement]) -> tuple[Limit, ...]:
    """Those that a sandbox can exceed: nothing holds them, or only in each process by itself."""
    return tuple(
        limit
        for limit, by in enforced.items()
        if by is Enforcement.NONE or (limit is Limit.MEMORY and by is Enforcement.RLIMIT)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one sandbox. Every one is always set: there is no unlimited."""

    memory_bytes: int = 512 * MIB
    pids: int = 128
    cpus: float = 1.0
    """CPU quota in cores."""
    open_files: int = 1024
    disk_bytes: int = 256 * MIB
    inodes: int = 65_536


class NetworkMode(StrEnum):
    """What of a network a sandbox has."""

    NONE = "none"
    """Not even a loopback."""
    LOOPBACK = "loopback"
    """Its own loopback, for programs inside to talk with each other."""
    ALLOW = "allow"
    """Besides, a proxy that connects to what the rules name."""
    OPEN = "open"
    """Besides, a proxy that connects to every public address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The network of one sandbox; outward there is only what the proxy connects."""

    mode: NetworkMode = NetworkMode.NONE
    allow: tuple[str, ...] = ()
    """Rules of mode `allow`: `example.org`, `*.example.org`, `192.0.2.7`, `10.1.0.0/16`,
    `[2001:db8::1]`, each for ports 80 and 443, or with a port (`:8080`) or any port (`:*`)."""
    bandwidth_up_bytes_s: int | None = None
    """Out of the sandbox; None does not limit it."""
    bandwidth_down_bytes_s: int | None = None
    """Into the sandbox; None does not limit it."""


class Reason(StrEnum):
    """Why an execution ended."""

    EXIT = "exit"
    SIGNAL = "signal"
    WALL_TIMEOUT = "wall_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    """It wrote nothing for as long as it was allowed to be silent."""
    CPU_TIMEOUT = "cpu_timeout"
    OOM = "oom"
    PIDS = "pids"
    DISK = "disk"
    OUTPUT = "output"
    KILLED = "killed"
    """Killed at the caller's request."""
    START_FAILED = "start_failed"
    """The program could not be started: not found, not executable, or a bad working directory."""
    SANDBOX_DIED = "sandbox_died"
    """The sandbox was seen to end while it ran, and it ended with it. A fault of ours."""
    OUTCOME_UNKNOWN = "outcome_unknown"
    """The connection to the sandbox broke or fell silent while it ran: it may have ended before,
    and nobody can tell how. A fault of ours; the sandbox has been given up."""


LOSSES = frozenset({Reason.SANDBOX_DIED, Reason.OUTCOME_UNKNOWN})
"""Ends that say nothing of the program: they are faults of ours and never worth a reward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pty:
    """A pseudo-terminal as a program's standard input, output and error."""

    rows: int = 24
    columns: int = 80


class Stdin(StrEnum):
    """Where a program's standard input comes from, other than from bytes given at its start."""

    STREAMED = "streamed"
    """From `Process.write`, while the program runs."""


class Stream(StrEnum):
    """Which of a program's streams. With a terminal everything is `stdout`."""

    STDOUT = "stdout"
    STDERR = "stderr"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A piece of output, as it came: cut anywhere, also inside a character."""

    stream: Stream
    data: bytes
    skipped_bytes: int = 0
    """How many bytes of this stream are left out before `data`."""

    @property
    def text(self) -> str:
        """Decoded as UTF-8, bad bytes replaced; a character that was cut in two is bad twice."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """What a sandbox is made of. Two equal specs may share a warm pool."""

    image: str = "host"
    snapshot: SnapshotId | None = None
    """Frozen files to start from, over the image; None starts from the image alone. Take the whole
    spec from `Snapshot.spec`: a snapshot fits only the image that it was made over."""
    writable: bool = False
    """Whether root inside may change the image's own programs and packages, as an agent that
    installs things does. Each such sandbox is about a millisecond slower to make."""
    limits: Limits = field(default_factory=Limits)
    lifetime_s: float = 24 * 3600.0
    """From its making until the node ends it, whatever has become of whoever asked for it."""
    network: Network = field(default_factory=Network)
    allow_unenforced: frozenset[Limit] = frozenset()
    """Limits that may go unenforced where this machine cannot hold them for the whole sandbox
    (`open_limits`). Any other such limit makes the sandbox be refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCapture:
    """One captured stream: its head and its tail, with what lay between them only counted."""

    head: bytes = b""
    tail: bytes = b""
    """Empty when the whole stream is in `head`."""
    total_bytes: int = 0

    @property
    def truncated(self) -> bool:
        return self.total_bytes > len(self.head) + len(self.tail)

    @property
    def text(self) -> str:
        """The stream decoded as UTF-8 (bad bytes replaced), with a mark where it was cut."""
        head = self.head.decode("utf-8", "replace")
        if not self.truncated:
            return head + self.tail.decode("utf-8", "replace")
        cut = self.total_bytes - len(self.head) - len(self.tail)
        return f"{head}\n[... {cut} bytes left out ...]\n{self.tail.decode('utf-8', 'replace')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """How one execution went. A failing program is a result, never an exception."""

    reason: Reason
    exit_code: int | None
    """None unless `reason` is `exit`-like, that is, unless the main process returned a code."""
    signal: int | None
    """None unless the main process was ended by a signal."""
    stdout: StreamCapture
    stderr: StreamCapture
    wall_s: float
    cpu_s: float
    memory_peak_bytes: int
    io_read_bytes: int = 0
    """From real disks, by the main process and those that it waited for; likewise what was
    written. A sandbox's own files are in memory, so most programs have neither."""
    io_written_bytes: int = 0
    detail: str = ""
    """For `start_failed`: the failing call and its error."""
    isolation: str = ""
    """The rung that was in force, for example `root` or `user-namespace`."""
    enforced: Mapping[Limit, Enforcement] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def ok(self) -> bool:
        return self.reason is Reason.EXIT and self.exit_code == 0

    @property
    def lost(self) -> bool:
        """True when this says nothing of the program, because the sandbox was lost under it."""
        return self.reason in LOSSES
