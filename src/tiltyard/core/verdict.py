"""What verification found, and the reward that follows from it. Data, never an exception."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType


class Outcome(StrEnum):
    """How a rollout ended. Exactly one per rollout."""

    GRADED = "graded"
    AGENT_FAULT = "agent_fault"
    """The submission could not be judged by its own doing: no code, unsafe files, tampering."""
    INFRA_FAULT = "infra_fault"
    """A sandbox, a host or a model server failed. Never a reward."""
    GRADER_FAULT = "grader_fault"
    """The task's tests or the verifier failed. Never a reward."""
    CANCELLED = "cancelled"


class CheckStatus(StrEnum):
    """Result of one check. Only `passed` counts for the submission."""

    PASSED = "passed"
    WRONG_ANSWER = "wrong_answer"
    EXCEPTION = "exception"
    BAD_VALUE_TYPE = "bad_value_type"
    OUTPUT_LIMIT = "output_limit"
    NO_REPLY = "no_reply"
    TIMEOUT = "timeout"
    OOM = "oom"
    CRASH = "crash"
    NOT_RUN = "not_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One expected test id and what became of it, with the evidence in words."""

    id: str
    status: CheckStatus
    evidence: str = ""
    weight: float = 1.0
    """Its share in partial credit, relative to the other checks."""


class Assurance(StrEnum):
    """How far a verdict can be trusted, by how it was found."""

    SEPARATE = "separate"
    """Tests and solution never shared a process; only values crossed."""
    WATCHED = "watched"
    """They shared a process, and tests that must fail were mixed in and failed."""
    SCRIPT = "script"
    """A script of the task decided, in a sandbox that the agent never touched."""


class Gap(StrEnum):
    """Why there is no measure where one was asked for."""

    INFRA = "infra"
    """A fault of ours. The measure is dropped for the whole group."""
    UNRESOLVED = "unresolved"
    """It was taken and says nothing: too few points, or too much noise."""
    NOT_POSSIBLE = "not_possible"
    """Nothing to measure in this submission, by its own doing: a wrong or missing answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One thing that was seen: in words, with a place and a figure where there are."""

    message: str
    code: str = ""
    """Of a rule or a tool, such as `C901`."""
    path: str = ""
    line: int = 0
    """From 1; 0 where there is none."""
    value: float | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Measured points with the line that was fitted through them, for evidence and plots."""

    name: str
    x_unit: str
    y_unit: str
    points: tuple[tuple[float, ...], ...]
    """Each (x, y)."""
    slope: float | None = None
    slope_low: float | None = None
    slope_high: float | None = None
    """A 95% confidence interval of `slope`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One measure of a submission beside its tests, raw and as a share of the best."""

    name: str
    """Such as `style`, `complexity`, `growth`, `leaks`, `state`, `judge`, `script`."""
    raw: float | None
    """As it was measured; None when it was not, and `gap` says why."""
    unit: str = ""
    normalised: float | None = None
    """From 0 (worst) to 1 (best); None when there is no `raw`."""
    gap: Gap | None = None
    reference: float | None = None
    """`raw` of the task's reference, measured in the same way; None where it was not measured."""
    evidence: tuple[Evidence, ...] = ()
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Everything a verification found. `checks` holds every expected id exactly once."""

    outcome: Outcome
    checks: tuple[Check, ...] = ()
    tamper: tuple[str, ...] = ()
    """What looked like an attempt to reach the tests or the verifier; empty when nothing did."""
    detail: str = ""
    """For a fault: what failed, in words."""
    task_unsound: bool = False
    """Of a grader fault, whether it lies in the task, which nobody can then be judged by."""
    components: tuple[Component, ...] = ()
    assurance: Assurance | None = None
    """None when nothing was judged, and in records of schema 2 or earlier."""
    baseline: float = 0.0
    """The score of the best constant answer, as preflight found it; partial credit starts there."""
    provenance: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the verdict depends on: `suite` (a digest), `task_revision`, `image`, `seed`, ..."""
    verifier: str = ""
    """Name and version of the verifier, with its mode."""
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def passed(self) -> int:
        return sum(check.status is CheckStatus.PASSED for check in self.checks)

    @property
    def score(self) -> float:
        """The weighted share of the checks that passed; 0.0 without any."""
        total = sum(check.weight for check in self.checks)
        passed = (each.weight for each in self.checks if each.status is CheckStatus.PASSED)
        return sum(passed) / total if total > 0 else 0.0

    @property
    def all_passed(self) -> bool:
        """True when at least one check was expected, and every expected one passed."""
        return bool(self.checks) and self.passed == len(self.checks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The one number, or none, and why. A pure function of a `Verdict` (`verify.reward`)."""

    value: float | None
    """None: this rollout must not teach anything (a fault of ours, or cancelled)."""
    why: str
    parts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """What the tests and each component that counted added to `value`, before it was rounded
    down; empty where nothing was weighed, as for a fault, tampering, or in older records."""
    gates: Mapping[str, bool] = field(default_factory=lambda: MappingProxyType({}))
    """What has to hold before anything is paid, and whether it did: `graded`, `untampered`, and
    `correct` where the weights demand it; empty in records of schema 3 or earlier."""
