"""What a provider holds of a sandbox from outside: its readings, its files' state and its end."""

from typing import Protocol

from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.footprint import Footprint
from tiltyard.sandbox.snapshots import Snapshot


class Hold(Protocol):
    """What a provider holds of a sandbox from outside."""

    def read_usage(self, *, reset_peak: bool) -> Usage:
        """Reads its counters; `reset_peak` starts the peak of memory anew.

        Of a sandbox that is gone, the last count of out-of-memory kills is still known.
        """
        ...

    def read_group(self, number: int) -> Usage:
        """Reads the counters of one execution's own group. Raises nothing for one that is gone."""
        ...

    def read_pids_refused(self) -> int:
        """How often a process was refused for want of room; a part of `read_usage`."""
        ...

    def read_memory_bytes(self) -> int | None:
        """What it holds now; None where no cgroup counts it."""
        ...

    def read_pids(self) -> int | None:
        """How many processes and threads there are, its supervisor too; None as above."""
        ...

    async def footprint(self, *, generations: int) -> Footprint | None:
        """What those hold that descend from its first process by at least so many generations.

        None when it is gone.
        """
        ...

    async def snapshot(self, spec: SandboxSpec) -> Snapshot:
        """Freezes its files as they are. Raises `SandboxError`."""
        ...

    async def changes(self) -> bytes:
        """What differs in its files from what it started with, as `parse_changes` reads it."""
        ...

    def destroy(self) -> None:
        """Kills it with all that runs in it, at once; idempotent."""
        ...

    async def gone(self) -> None:
        """Returns when nothing of it is left. Raises `SandboxError` when that takes too long."""
        ...
