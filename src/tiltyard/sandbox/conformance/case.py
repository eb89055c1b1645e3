"""What a hostile case is, and what is known after it was let loose. Values only."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tiltyard.core.execution import (
    MIB,
    Enforcement,
    ExecResult,
    Limit,
    Limits,
    Network,
    NetworkMode,
    SandboxSpec,
)

SMALL = Limits(memory_bytes=96 * MIB, pids=32, disk_bytes=16 * MIB, inodes=1024, open_files=64)
"""So small that reaching for a limit is quick, and twice of it harms no machine."""
TIMEOUT_S = 30.0


class Family(StrEnum):
    """What a case reaches for."""

    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    FILES = "files"
    OUTPUT = "output"
    CALLS = "calls"
    ESCAPES = "escapes"
    IDENTITY = "identity"
    NETWORK = "network"
    EGRESS = "egress"
    NEIGHBOURS = "neighbours"
    ZYGOTES = "zygotes"
    SESSIONS = "sessions"
    """Terminals, programs in the background, input and output as they come."""
    SNAPSHOTS = "snapshots"


NO_NETWORK = Network()


class Outcome(StrEnum):
    """What became of a case."""

    CONTAINED = "contained"
    ESCAPED = "escaped"
    INCONCLUSIVE = "inconclusive"
    """Not everything was tried, or what happened cannot be told."""
    NOT_ENFORCED = "not enforced here"
    """The provider says itself that it cannot hold the limit on this machine; nothing was run."""
    NOT_TRIED = "not tried here"
    """The provider lacks what the case tries, or what the suite needs to try it."""
    KNOWN = "open, as documented"
    """It worked, and docs/security.md says that it does. Never green."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """An outcome with its reason."""

    outcome: Outcome
    words: str


class Language(StrEnum):
    """What a program is written in."""

    PYTHON = "python"
    """Runs with the prelude in front, under the image's own `python3`."""
    SHELL = "sh"
    ARGV = "argv"
    """No source: `arguments` is the command."""


class Stays(StrEnum):
    """How long a program is there."""

    TO_ITS_END = "to its end"
    """The next one is run after it."""
    BESIDE = "beside"
    """Beside all that is run and asked after it; killed by the host then."""
    UNTIL_KILLED = "until killed"
    """Beside those after it but the last, before which the host kills it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One hostile program, and how the host runs it."""

    source: str = ""
    language: Language = Language.PYTHON
    arguments: tuple[str, ...] = ()
    timeout_s: float = TIMEOUT_S
    cpu_s: int = 0
    stdin: bytes = b""
    cwd: str = "/workspace"
    output_bytes_max: int | None = None
    """None is the provider's own default."""
    stays: Stays = Stays.TO_ITS_END
    terminal: bool = False
    """Runs on a terminal of its own."""
    fed_bytes: int = 0
    """The host writes as much to its standard input while it runs, or types it."""


class FileOperation(StrEnum):
    """What the host asks of the attacked sandbox's files."""

    READ = "read"
    WRITE = "write"
    LIST = "list"
    DIFF = "diff"
    """What the sandbox changed; the path is of no effect."""
    FORK = "fork"
    """Reads the path in a fork of a snapshot."""
    DOWNLOAD = "download"
    """Fetches the tree below the path, and reads what arrived on the host."""
    UPLOAD = "upload"
    """Puts a small tree, `UPLOADED`, below the path."""


UPLOADED = "b/secret"
"""The one file of the tree that is put into sandboxes; it is named as the host's secret is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest:
    """A request of the host's; `{secret}` in the path becomes the path of the host's secret."""

    operation: FileOperation
    path: str
    content: bytes = b""
    times: int = 1
    after_s: float = 0.0
    """A pause before it, so that what goes on can be seen to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReply:
    """What came of a request, or of the first of its repetitions that came to something else."""

    request: FileRequest
    content: bytes = b""
    names: tuple[str, ...] = ()
    error: str = ""
    """The type of the error; empty when it was answered."""
    elapsed_s: float
    grown_bytes: int = 0
    """By how much the machine's memory for files and sharing grew meanwhile, at the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """The provider refused to run a program."""

    error: str
    """The type of the error."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMarks:
    """What is the host's own and must not be found inside."""

    secret: str
    """The content of a private file of the host."""
    neighbour_secret: str
    """The content of a file of the neighbour's."""
    hostname: str
    boot_id: str
    machine_id: str
    """Empty where the host has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the host saw of itself and of the neighbour."""

    harm: tuple[str, ...] = ()
    """Each thing that changed on the host, or went wrong beside the case."""
    left: tuple[str, ...] = ()
    """What was still there after the sandbox had been closed."""
    tasks_max: int = 0
    """Processes and threads of the attacked sandbox, as seen from outside at the most."""
    lag_ms: float = 0.0
    """By how much this process was late at the most."""
    answer_ms: float = 0.0
    """How long the neighbour took to answer, at the most."""
    late: tuple[str, ...] = ()
    """Each outage of the host or the neighbour: what took longer than there is patience for."""
    beats: int = 0
    """How often the neighbour was asked and answered rightly during the case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """What of a sandbox with a way out came to the far side of its proxy, as that side saw it."""

    asked: tuple[str, ...] = ()
    """Names that the suite's resolver was asked for."""
    arrived: tuple[bytes, ...] = ()
    """What the suite's server was sent, by connection."""
    flooded_bytes: int = 0
    """What that server could send at the most to somebody who reads nothing."""
    let_out: tuple[str, ...] = ()
    """`host:port` of each connection that the sandbox's own record says was allowed."""
    denied: int = 0
    """How many it says were not."""
    by_neighbour: int = 0
    """How many of either the neighbour's own record tells of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """All that a judge may look at."""

    results: tuple[ExecResult | NotRun, ...]
    """One for each program that was run, in order."""
    replies: tuple[FileReply, ...] = ()
    answers: tuple[str, ...] = ()
    """What the runs of a kept interpreter printed."""
    witness: ExecResult | None = None
    """What the neighbour said after the attack, when the case asks it something."""
    waited_s: float = 0.0
    """How long the host waited for the result of a program, at the most and by its own clock."""
    forked: tuple[ExecResult | NotRun, ...] = ()
    """The results of the case's program in each fork."""
    fed_bytes: int = 0
    """How much of a program's input was taken from the host before it ended."""
    beyond: Beyond = Beyond()
    survived: bool = True
    """Whether the attacked sandbox answers after everything in it was killed."""
    limits: Limits
    enforced: Mapping[Limit, Enforcement]
    isolation: str
    marks: HostMarks
    around: Surroundings


Judge = Callable[[Observed], Finding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing that a program may try, with its safe outcome."""

    name: str
    family: Family
    tries: str
    """What it tries, in a few words."""
    safe: str
    """What has to become of it."""
    judge: Judge
    programs: tuple[Program, ...] = ()
    """Run one after another in one sandbox."""
    runs: tuple[str, ...] = ()
    """Instead of programs: sources that a kept interpreter runs, one after another."""
    requests: tuple[FileRequest, ...] = ()
    """Asked by the host after the programs; while the last one runs, with `racing`."""
    racing: bool = False
    beside: Program | None = None
    """Runs in the neighbour before the attack; it may leave something running."""
    witness: Program | None = None
    """Runs in the neighbour after the attack."""
    in_forks: Program | None = None
    """Runs in each of two forks of a snapshot, which is made after the programs and requests."""
    limits: Limits = SMALL
    network: Network = NO_NETWORK
    """Of the attacked sandbox; `{far}` in its rules becomes the port of the suite's server."""
    neighbour_network: Network = NO_NETWORK
    """The same of the neighbour."""
    needs: frozenset[Limit] = frozenset()
    """Limits that must be held for the sandbox as a whole, not only for each process."""
    writable: bool = False
    """Its sandbox and the neighbour's may change the image's own files, where the provider has
    such sandboxes."""
    ends_sandbox: bool = False
    """Its sandbox may be lost, as the program's own doing."""
    known: str = ""
    """Why it may work, as docs/security.md says; empty when it never may."""
    known_rungs: frozenset[str] = frozenset()
    """On which rungs of isolation; empty: on all."""
    slow: bool = False
    """Takes over a quarter of a second."""

    @property
    def reaches_out(self) -> bool:
        """Whether it needs the suite's own server and resolver on the far side of a proxy."""
        ways = {self.network.mode, self.neighbour_network.mode}
        return bool(ways & {NetworkMode.ALLOW, NetworkMode.OPEN})

    def spec(self, far_port: int) -> SandboxSpec:
        """What its sandbox is made from. What is not enforced here is told, and not refused."""
        return SandboxSpec(
            limits=self.limits,
            allow_unenforced=frozenset(Limit),
            writable=self.writable,
            network=_with_port(self.network, far_port),
        )

    def neighbour_spec(self, far_port: int) -> SandboxSpec:
        """What the neighbour is made from."""
        return SandboxSpec(
            limits=SMALL,
            allow_unenforced=frozenset(Limit),
            writable=self.writable,
            network=_with_port(self.neighbour_network, far_port),
        )


def _with_port(network: Network, far_port: int) -> Network:
    allow = tuple(rule.replace("{far}", str(far_port)) for rule in network.allow)
    return replace(network, allow=allow)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseReport:
    """What became of one case."""

    name: str
    family: Family
    outcome: Outcome
    words: str
    elapsed_s: float
    tries: int = 1
    """2 when at the first one nothing but an outage spoke against it; this is the second then."""
    around: Surroundings = field(default_factory=Surroundings)
