"""The synchronous twin of `tiltyard.sandbox.pool.Pool`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from contextlib import AbstractContextManager

from tiltyard.core.execution import SandboxSpec
from tiltyard.sandbox.pool import Pool as AsyncPool, PoolCounts, Provider as AsyncProvider
from tiltyard.sync.twin import OpenTwin, Twin
from tiltyard.sync.twins.sandbox import Sandbox
from tiltyard.sync.twins.snapshot import Snapshot


class Pool(OpenTwin[AsyncPool]):
    """Hands out sandboxes of one provider. Use with `with`."""

    def __init__(
        self,
        provider: Twin[AsyncProvider],
        *,
        in_use_max: int = 64,
        warm: int = 4,
        warm_max: int = 32,
        checked_after_s: float = 10.0,
    ) -> None:
        """`warm` is how many are kept ready for each spec lately used; 0 makes each on demand.

        Where more were asked for at once in the last minute, so many are kept, but no more than
        `warm_max` of a spec: each costs up to 0.8 MB. One that was kept longer than
        `checked_after_s` has to answer before it is handed out.
        """
        super().__init__(
            AsyncPool(
                provider._real,
                in_use_max=in_use_max,
                warm=warm,
                warm_max=warm_max,
                checked_after_s=checked_after_s,
            )
        )

    @property
    def counts(self) -> PoolCounts:
        return self._read(lambda: self._real.counts)

    def sandbox(self, spec: SandboxSpec) -> AbstractContextManager[Sandbox]:
        """A sandbox for the length of a block."""
        return self._around(lambda: self._real.sandbox(spec), Sandbox)

    def acquire(self, spec: SandboxSpec) -> Sandbox:
        """Hands out a sandbox that nobody used before; give it back with `release`.

        Waits, first come first served, while as many are in use as may be. Raises `SandboxError`
        when too many wait already or none can be made, and `SandboxClosed` when the pool is closed.
        """
        it = self._call(lambda: self._real.acquire(spec))
        return Sandbox(it, self._portal)

    def fork(self, snapshot: Snapshot, *, count: int) -> list[Sandbox]:
        """Hands out `count` sandboxes that stand on a snapshot; all of them, or none.

        Raises `SandboxError` as `acquire` does, and when that many are never to be had at once.
        """
        it = self._call(lambda: self._real.fork(snapshot._real, count=count))
        return [Sandbox(each, self._portal) for each in it]

    def forget(self, spec: SandboxSpec) -> None:
        """Destroys what is kept warm for a spec that will not be asked for again."""
        self._read(lambda: self._real.forget(spec))

    def release(self, sandbox: Sandbox) -> None:
        """Takes a sandbox back and kills it, at once and without waiting. Idempotent.

        The pool waits until nothing of it is left, and only then is its place another's. One that
        does not go is logged, and loses its place all the same.
        """
        self._call(lambda: self._real.release(sandbox._real))
