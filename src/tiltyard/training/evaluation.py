"""Sampled pass@1 on tasks that were not learned from, with its uncertainty. Pure."""

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tiltyard.core.trajectory import Trajectory

CONFIDENCE_Z = 1.96
"""Standard normal quantile of a two-sided 95% interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One policy on one fixed set of tasks."""

    policy_version: str
    tasks: int
    families: int
    rollouts: int
    """Those with a reward; a fault of ours says nothing about the policy."""
    pass_at_1: float
    """Mean over tasks of the part of sampled answers that were right; 0 without any rollout."""
    low: float
    high: float
    """Bounds of the 95% interval over tasks, by the normal approximation of the mean of the tasks'
    own means: samples of one task are no independent evidence."""


def evaluation_of(trajectories: Iterable[Trajectory]) -> Evaluation:
    """Summarises the rollouts of one evaluation."""
    rewards: dict[str, list[float]] = defaultdict(list)
    families: set[str] = set()
    version = ""
    for trajectory in trajectories:
        version = trajectory.versions.get("policy", "") or version
        if trajectory.reward.value is not None:
            rewards[trajectory.task_id].append(trajectory.reward.value)
            families.add(trajectory.family)
    means = [sum(values) / len(values) for values in rewards.values()]
    mean = sum(means) / len(means) if means else 0.0
    spread = sum((each - mean) ** 2 for each in means) / max(len(means) - 1, 1)
    half = CONFIDENCE_Z * math.sqrt(spread / max(len(means), 1))
    return Evaluation(
        policy_version=version,
        tasks=len(means),
        families=len(families),
        rollouts=sum(map(len, rewards.values())),
        pass_at_1=mean,
        low=max(0.0, mean - half),
        high=min(1.0, mean + half),
    )
