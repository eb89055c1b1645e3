"""The synchronous twin of `tiltyard.sandbox.network.decisions.Egress`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from tiltyard.sandbox.network.decisions import (
    Bandwidth,
    Egress as AsyncEgress,
    EgressCounts,
    EgressDecision,
)
from tiltyard.sync.twin import Twin


class Egress(Twin[AsyncEgress]):
    """What the owner of a sandbox can see of its way out."""

    @property
    def decisions(self) -> tuple[EgressDecision, ...]:
        """The last ones, oldest first; `counts` tells how many there were."""
        return self._read(lambda: self._real.decisions)

    @property
    def counts(self) -> EgressCounts:
        return self._read(lambda: self._real.counts)

    def bandwidth(self) -> Bandwidth:
        """Reads limits and counters back from the kernel. Raises `SandboxClosed` after its end."""
        return self._call(self._real.bandwidth)
