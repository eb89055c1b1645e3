"""The record of a rollout: each turn of the policy, what it did, and what came of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from tiltyard.core.execution import ExecResult
from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.verdict import Reward, Verdict
from tiltyard.core.weights import Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTokens:
    """What the engine really sampled; never a re-tokenisation."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """One natural-log probability per output id, under the sampling distribution."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What came back after a turn: feedback text for the policy's next turn."""

    text: str
    solved: bool
    """True when every visible example passed, as far as the agent's own sandbox shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """All that a policy may see of a task: no reference, no hidden suite."""

    task_id: TaskId
    instruction: str
    examples: str = ""
    """The visible examples, one a line; empty when the task shows none."""
    code: str
    """The module as it stands before this turn."""
    earlier: tuple["Step", ...] = ()
    sample: int = 0
    """Index of the rollout within its group; with the run's seed it fixes the sampling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyReply:
    """One turn of a policy."""

    text: str
    policy_version: str
    tokens: PolicyTokens | None = None
    """None when the policy does not expose its tokens."""
    truncated: bool = False
    """True when a length limit cut the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was read from a reply: the module's new source, or why there is none."""

    code: str | None
    problem: str = ""
    """In words that the policy may see; empty when there is code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn: the reply, the code it led to, and what running the examples showed."""

    reply: PolicyReply
    code: str | None
    """None when no code could be read from the reply."""
    problem: str = ""
    """Why no code could be read; empty when it could."""
    execution: ExecResult | None = None
    """None when the step ran nothing: no code, or no later turn that could use the feedback."""
    observation: Observation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The full record of one rollout. Its outcome is `verdict.outcome`."""

    id: RolloutId
    group: GroupId
    task_id: TaskId
    family: str
    steps: tuple[Step, ...]
    verdict: Verdict
    reward: Reward
    """In a record that of this rollout by itself, because it is kept when it ends, and its group is
    complete only later. In what a run returns, of its group (`rollout.runs.rewarded_by_group`)."""
    started_unix_s: float
    wall_s: float
    seed: int
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Versions of everything that shaped the record: policy, task revision, verifier, package."""
    shared_verdict_of: RolloutId | None = None
    """The rollout of the same group with the identical answer whose verification this one shares;
    None when it was verified itself."""
    weights: Weights | None = None
    """What `reward` was made with; None for the default weights, and in records of schema 3 or
    earlier, which name only the digest."""
    prompt: Prompt | None = None
    """What the policy was asked first, before any turn; None in records of schema 1."""

    @property
    def weights_lost(self) -> bool:
        """True of a record of schema 3 or earlier with other weights than the default: it names
        them and does not hold them."""
        return self.weights is None and "weights" in self.versions
