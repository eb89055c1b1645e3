"""The synchronous twin of `tiltyard.sandbox.setups.SetUps`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from contextlib import AbstractContextManager

from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.setups import KEPT_MAX, SetUp, SetUps as AsyncSetUps
from tiltyard.sync.twin import OpenTwin, as_it_is
from tiltyard.sync.twins.pool import Pool


class SetUps(OpenTwin[AsyncSetUps]):
    """Snapshots of set-ups that were done, the ones used last. Use with `with`."""

    def __init__(self, pool: Pool, *, kept_max: int = KEPT_MAX) -> None:
        super().__init__(AsyncSetUps(pool._real, kept_max=kept_max))

    def prepared(self, spec: SandboxSpec, set_up: SetUp) -> AbstractContextManager[SandboxSpec]:
        """The spec of sandboxes that start with the set-up done; done now when it was not before.

        Good inside the block only: beyond that, those used last are kept. Whoever asks for the same
        meanwhile waits for it. Raises `SetUpFailed` with the command and
        its output, and `SandboxError`.
        """
        return self._around(lambda: self._real.prepared(spec, set_up), as_it_is)
