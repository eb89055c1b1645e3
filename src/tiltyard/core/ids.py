"""Identifiers, distinct types so that a task's id is never passed where a rollout's is meant."""

from typing import NewType

TaskId = NewType("TaskId", str)
"""Stable name of a task; the same seed and generator version give the same id."""

RolloutId = NewType("RolloutId", str)
"""One attempt of a policy at a task; unique within a run."""

GroupId = NewType("GroupId", str)
"""The rollouts of one task that are compared with each other."""

SandboxId = NewType("SandboxId", str)
"""One sandbox, unique on the machine; also the last part of its cgroup's name."""

SnapshotId = NewType("SnapshotId", str)
"""A sandbox's frozen files; unique within its provider."""

ProcessId = NewType("ProcessId", str)
"""One program of a sandbox; unique within that sandbox, and never used again in it."""
