"""What a task asks to have measured beside its hidden suite: `Component`s of the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """A program of the task's that makes inputs of any size."""

    source: str
    """Python source that defines `generate(rng, size)`: `rng` is a seeded `random.Random`, and the
    result is the tuple of arguments for one call; of a program, its standard input as text or
    bytes, or a tuple of that and a list of arguments. Run in a sandbox that no solution enters."""
    target: str = ""
    """The function of the solution that is called with them; empty for a program."""
    fresh_cases: int = 0
    """How many new inputs each verification adds to the hidden suite, with the reference's answers
    as what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How CPU time grows with the size of the input, beside the reference's growth."""

    size_min: int = 16
    size_max: int = 65_536
    seconds_max: float = 10.0
    """CPU time that each side may use in all."""
    tolerance: float = 0.35
    """How much steeper than the reference's the slope may be, in powers of the size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaks:
    """Whether memory, descriptors or threads grow over many calls.

    Of a program what it loses of its heap is counted instead, on cases of its hidden suite; none of
    these fields is read then.
    """

    calls: int = 400
    warm_up: int = 50
    size: int = 64
    """Of the inputs."""
    bytes_per_call_max: float = 64.0


class StateKind(StrEnum):
    """What of a sandbox's final state is asserted; in brackets, which fields it reads."""

    FILE = "file"
    """A file is there: `path`; its content equals `equals` or matches `matches`, its `mode`."""
    ABSENT = "absent"
    """Nothing is at `path`."""
    PROCESS = "process"
    """A process is alive whose command line matches `matches`."""
    PORT = "port"
    """Something accepts connections at `port` of the sandbox's loopback."""
    HTTP = "http"
    """`GET path` at `port` answers with `status`, and a body as `equals` or `matches` say."""
    SQL = "sql"
    """`query` on the SQLite file at `path` gives the rows in `rows`."""
    SERVICE = "service"
    """A service whose pid is in the file at `path` runs, whatever started it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCheck:
    """One assertion on the final state of an agent's sandbox."""

    id: str
    kind: StateKind
    weight: float = 1.0
    path: str = ""
    equals: str | None = None
    matches: str | None = None
    """A regular expression in RE2's syntax, searched for; `^` and `$` are those of lines."""
    mode: int | None = None
    """Permission bits, such as 0o600."""
    port: int = 0
    status: int = 200
    query: str = ""
    rows: tuple[tuple[str, ...], ...] = ()
    """Each value as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubric:
    """What a model is asked about a submission. It never decides correctness."""

    criteria: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By name, each a question that is answered from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """All that is measured. Nothing is, by default."""

    static: bool = False
    """Style, complexity, security lint, dynamic code and suppressions."""
    types: bool = False
    """Also the types, by mypy."""
    inputs: Inputs | None = None
    cost: bool = False
    """CPU time, peak memory and I/O of the hidden suite in a cold process."""
    growth: Growth | None = None
    leaks: Leaks | None = None
    state: tuple[StateCheck, ...] = ()
    rubric: Rubric | None = None
