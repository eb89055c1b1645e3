"""A provider whose killed sandboxes are gone when a test says so, and turns of the loop."""

import asyncio
from collections.abc import Callable

from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.native.hold import DESTROY_TIMEOUT_S
from tiltyard.sandbox.snapshots import Snapshot
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.supervisor import Supervisor


class LingeringHold:
    """Is killed at once, and gone when it is let go."""

    def __init__(self) -> None:
        self.destroyed = False
        self.error: Exception | None = None
        """What the wait for its end raises; None: it ends."""
        self.let_go = asyncio.Event()

    def read_usage(self, *, reset_peak: bool) -> Usage:
        return Usage(cpu_s=None, memory_peak_bytes=None)

    def read_pids_refused(self) -> int:
        return self.read_usage(reset_peak=False).pids_refused

    def read_group(self, number: int) -> Usage:
        return Usage(cpu_s=None, memory_peak_bytes=None)

    def read_memory_bytes(self) -> int | None:
        return None

    def read_pids(self) -> int | None:
        return None

    async def snapshot(self, spec: SandboxSpec) -> Snapshot:
        raise NotImplementedError

    async def changes(self) -> bytes:
        raise NotImplementedError

    def destroy(self) -> None:
        self.destroyed = True

    async def gone(self) -> None:
        try:
            async with asyncio.timeout(DESTROY_TIMEOUT_S):
                await self.let_go.wait()
        except TimeoutError:
            raise SandboxError("nobody let it go") from None
        if self.error is not None:
            raise self.error


class LingeringProvider:
    """Makes sandboxes in which nothing runs, and keeps what it holds of each."""

    def __init__(self) -> None:
        self.holds: dict[SandboxId, LingeringHold] = {}
        self._lets_go = False

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        del for_zygotes
        id_ = SandboxId(f"lingering-{len(self.holds)}")
        hold = self.holds[id_] = LingeringHold()
        if self._lets_go:
            hold.let_go.set()
        return Sandbox(
            id_=id_,
            spec=spec,
            supervisor=Supervisor(id_),
            isolation="none",
            enforced={},
            environment={},
            hold=hold,
            ends_s=asyncio.get_running_loop().time() + spec.lifetime_s,
        )

    @property
    def killed(self) -> int:
        return sum(hold.destroyed for hold in self.holds.values())

    def let_all_go(self) -> None:
        """Also those that are made later."""
        self._lets_go = True
        for hold in self.holds.values():
            hold.let_go.set()


async def until(condition: Callable[[], bool]) -> None:
    """Lets the loop turn until a condition holds; the test's own timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - what is waited for sets no event
        await asyncio.sleep(0)


async def turns() -> None:
    """Lets everything go on that waits for nothing from outside."""
    for _ in range(20):
        await asyncio.sleep(0)
