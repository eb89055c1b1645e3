"""A task: what the policy is asked, what it starts from, and how its answer is judged.

A `Task` holds secrets (reference, hidden suite). Only the trusted side sees one; a policy gets
the `Prompt` that the rollout room makes from its public parts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from tiltyard.core.execution import Limits
from tiltyard.core.ids import TaskId
from tiltyard.core.values import Value


class Split(StrEnum):
    """Which seeds a task may come from. The two never overlap."""

    TRAIN = "train"
    HELDOUT = "heldout"


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodCall:
    """One call on an object that an earlier call made and that stays inside the sandbox."""

    name: str
    args: tuple[Value, ...] = ()


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


Suite = CallSuite | PytestSuite


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
    """Wall time for all of one verification's calls together."""
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    reference_checked: bool = field(default=False, compare=False)
    """True where whoever made the task ran its reference on the hidden cases, as a generator does
    to get the expected values: the verifier then need not. A task file cannot say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What an agent left behind: regular files and symbolic links, by relative path."""

    files: Mapping[str, bytes]
    links: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
