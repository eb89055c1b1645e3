"""The synchronous twin of `tiltyard.sandbox.snapshots.Snapshot`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import SnapshotId
from tiltyard.sandbox.snapshots import Snapshot as AsyncSnapshot
from tiltyard.sync.twin import OpenTwin


class Snapshot(OpenTwin[AsyncSnapshot]):
    """Frozen files. Drop it when no more forks are wanted, or use `with`."""

    @property
    def id(self) -> SnapshotId:
        return self._real.id

    @property
    def spec(self) -> SandboxSpec:
        """What a fork is made of: the sandbox's own spec, standing on this snapshot."""
        return self._real.spec

    def drop(self) -> None:
        """No new fork can be made from it; those that live go on. Idempotent."""
        self._call(self._real.drop)
