"""A task: what the policy is asked, what it starts from, and how its answer is judged.

A `Task` holds secrets (reference, hidden suite). Only the trusted side sees one; a policy gets
the `Prompt` that the rollout room makes from its public parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tiltyard.core.checks import Checks
from tiltyard.core.execution import Limits
from tiltyard.core.ids import TaskId
from tiltyard.core.values import Value
from tiltyard.core.weights import Weights


class Split(StrEnum):
    """Which seeds a task may come from. The two never overlap."""

    TRAIN = "train"
    HELDOUT = "heldout"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodCall:
    """One call on an object that an earlier call made and that stays inside the sandbox."""

    name: str
    args: tuple[Value, ...] = ()


class Compare(StrEnum):
    """What of a value has to be as expected."""

    EXACT = "exact"
    """Equal throughout, types included; floats within the suite's tolerance. Not-a-number equals
    not-a-number and nothing else, an infinity only itself, and the two zeros each other."""
    UNORDERED = "unordered"
    """A list or tuple with the same members, as often, in any order; in the members, order counts.
    Any other value as `EXACT`."""
    ANY_OF = "any_of"
    """`EXACT` to one of the members of the expected list or tuple."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCase:
    """One test of a function or class: call it, compare what comes back."""

    id: str
    target: str
    """Name of a function or class in the solution's module."""
    args: tuple[Value, ...] = ()
    then: tuple[MethodCall, ...] = ()
    """When not empty, `target(*args)` makes an object; these are called on it in order and the
    list of their results is what is compared."""
    expected: Value = None
    raises: str | None = None
    """Name of the builtin exception that the (last) call must raise; None when it must return."""
    arguments_kept: bool = False
    """True: the case also fails when the call changed its arguments; with `then`, when the call
    that made the object did."""
    compare: Compare = Compare.EXACT
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSuite:
    """Tests as plain calls, compared on the trusted side. The fast path."""

    cases: tuple[CallCase, ...]
    float_tolerance: float = 1e-9
    """Relative and absolute tolerance for floats; all else is compared exactly, types included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PytestSuite:
    """Tests as ordinary pytest files and their helper modules, by file name.

    They import the solution's module by name and get a proxy of it.
    """

    files: Mapping[str, str]
    inplace: bool = False
    """True: what the solution does to a list, dict, set or bytearray that it was given, it does to
    the test's own as well. Needed to test functions that work in place, and a risk otherwise: a
    solution that empties `xs` makes a later `sorted(xs)` of the test agree with it."""


class CompareOutput(StrEnum):
    """What of a program's standard output has to be as expected."""

    EXACT = "exact"
    """Byte by byte."""
    LINES = "lines"
    """Line by line without white space at line ends and empty lines at the end."""
    TOKENS = "tokens"
    """Word by word; words that are both numbers within the suite's tolerance, two whole numbers
    exactly. Not-a-number and infinity are words."""
    CHECKER = "checker"
    """The suite's checker program decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramCase:
    """One run of a program: what it reads and what it must print."""

    id: str
    stdin: bytes = b""
    arguments: tuple[str, ...] = ()
    expected: bytes = b""
    exit_code: int | None = 0
    """What it must exit with; None accepts any."""
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSuite:
    """Tests of a program by standard input and output, in any language.

    Each case has the task's whole time limit, and a sandbox of its own.
    """

    source: str
    """The file that a submission consists of, such as `solution.py` or `main.c`."""
    build: tuple[str, ...] = ()
    """A command that is run once beside the source, such as `cc -O2 -o main main.c`; empty for
    none."""
    run: tuple[str, ...]
    """The command that is run for each case, in the same directory."""
    cases: tuple[ProgramCase, ...]
    compare: CompareOutput = CompareOutput.LINES
    float_tolerance: float = 1e-9
    checker: str | None = None
    """Python source of a checker. It is run in a sandbox of its own, with the paths of input,
    expected and given output as arguments; exit code 0 accepts, 1 refuses, and any other end, an
    exception that nobody caught too, is a fault of the grader. The output may be any text:
    refuse what cannot be read. One that breaks on what is no UTF-8, as after `open(path).read()`,
    is not shown any such output, which is then wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositorySuite:
    """Tests that must import the project they test: pytest in one process with it (overlay)."""

    base: Mapping[str, bytes]
    """The project as the agent got it, by relative path; may be empty."""
    tests: Mapping[str, bytes]
    """Test files and their helpers, by path below `tests/`."""
    reference: Mapping[str, bytes]
    """The files that solve it, by relative path, laid over `base`."""
    sources: tuple[str, ...]
    """Globs of what is taken of a submission; `**` crosses directories."""
    protected: tuple[str, ...] = ()
    """Globs of what always comes from the task, even where `sources` names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptSuite:
    """A task's own `test.sh`, in a fresh sandbox, with a number for its answer (Harbor)."""

    tests: Mapping[str, bytes]
    """What lies in `/tests`, by relative path; `test.sh` is run."""
    reference: Mapping[str, bytes]
    """The files that solve it, by path relative to `workdir`."""
    solve: bytes | None = None
    """A script that makes the reference where files alone do not (`solve.sh`)."""
    base: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    """What lies in `workdir` before the artifacts are laid over it."""
    artifacts: tuple[str, ...] = ("**",)
    """Globs of what is taken of a submission."""
    workdir: str = "/app"


Suite = CallSuite | PytestSuite | ProgramSuite | RepositorySuite | ScriptSuite


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A function task: repair or write one module."""

    id: TaskId
    family: str
    """The template or source it comes from; results are grouped by it."""
    split: Split
    revision: str
    """Version of whatever made the task; a new revision may not reproduce an older task."""
    instruction: str
    module: str = "solution"
    starter: str
    """The source the policy starts from; empty when it writes from nothing."""
    reference: str
    visible: CallSuite
    """Examples that the policy may see."""
    hidden: Suite
    limits: Limits = field(default_factory=Limits)
    """Of the agent's own sandbox; verification runs under the verifier's."""
    time_limit_s: float = 5.0
    """Wall time for all of one verification's calls together; of a program, for each case."""
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    checks: Checks = field(default_factory=Checks)
    """What is measured beside the hidden suite."""
    weights: Weights | None = None
    """What its rewards are made of, unless a run says otherwise; None: all of the tests or none."""
    baseline: float = 0.0
    """From 0 to below 1: the score of the best answer that took no work, as `tiltyard check` finds
    it. Partial credit starts there."""
    reference_checked: bool = field(default=False, compare=False)
    """True where whoever made the task ran its reference on the hidden cases, as a generator does
    to get the expected values: the verifier then need not. A task file cannot say so."""


class Odd(StrEnum):
    """What an entry of a submission is that was not read."""

    FIFO = "fifo"
    DEVICE = "device"
    SOCKET = "socket"
    HARD_LINK = "hard link"
    """A file with another name too, which may lie anywhere."""
    TOO_LARGE = "too large"
    TOO_MANY = "too many"
    """A directory at which reading stopped; what follows is unknown."""
    TOO_DEEP = "too deep"
    UNREADABLE = "unreadable"
    """Its permissions keep even us out."""
    BAD_NAME = "bad name"
    """Its name is no UTF-8."""
    CHANGED = "changed"
    """It became something else while it was looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What an agent left behind, by relative path. Hostile; nothing in it was followed."""

    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    odd: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What else there was, by path, with what it is: one of `Odd`. Its content was never read. A
    path of `.` is the submission as a whole."""
