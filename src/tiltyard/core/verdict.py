"""What verification found, and the reward that follows from it. Data, never an exception."""

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Everything a verification found. `checks` holds every expected id exactly once."""

    outcome: Outcome
    checks: tuple[Check, ...] = ()
    tamper: tuple[str, ...] = ()
    """What looked like an attempt to reach the tests or the verifier; empty when nothing did."""
    detail: str = ""
    """For a fault: what failed, in words."""
    verifier: str = ""
    """Name and version of the verifier, with its mode."""
    wall_s: float = 0.0
    cpu_s: float = 0.0

    @property
    def passed(self) -> int:
        return sum(check.status is CheckStatus.PASSED for check in self.checks)

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
