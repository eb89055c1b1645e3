"""The daemon's sandboxes, each with its deadline."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from tiltyard.cli.yard.record import lost_error, unknown_error
from tiltyard.cli.yard.wire import TTL_S_MAX, Create, Row, State
from tiltyard.core.errors import SandboxClosed, SandboxDied, SandboxError
from tiltyard.core.execution import Limits, Network, SandboxSpec, open_limits
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.supervised import Sandbox

SANDBOXES_MAX = 256
LIFETIME_SPARE_S = 5.0
GONE_KEPT_MAX = 256
"""Ids of which it is still known why there is nothing behind them."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Tenant:
    """A sandbox that is kept, or being made."""

    id: str
    spec: SandboxSpec
    created_s: float
    deadline_s: float
    sandbox: Sandbox | None = None
    """None while it is being made."""
    timer: asyncio.TimerHandle | None = None

    def row(self) -> Row:
        limits = self.spec.limits
        alive = self.sandbox is None or self.sandbox.alive
        usage = self.sandbox.usage() if self.sandbox is not None else None
        enforced = self.sandbox.enforced if self.sandbox is not None else {}
        return Row(
            id=self.id,
            state=State.LIVE if alive else State.DEAD,
            created_s=self.created_s,
            deadline_s=self.deadline_s,
            memory_bytes_max=limits.memory_bytes,
            pids_max=limits.pids,
            cpus=limits.cpus,
            unenforced=list(open_limits(enforced)),
            cpu_s=usage.cpu_s if usage else None,
            memory_bytes=self.sandbox.memory_bytes() if self.sandbox else None,
            memory_peak_bytes=usage.memory_peak_bytes if usage else None,
            pids=self.sandbox.pids() if self.sandbox else None,
        )


class Kept:
    """Makes sandboxes, finds them by id, and ends them in time."""

    def __init__(
        self,
        provider: Provider,
        *,
        group: asyncio.TaskGroup,
        lost: Iterable[Row],
        changed: Callable[[], None],
    ) -> None:
        """`lost` are those of an earlier daemon; `changed` is called when any come or go."""
        self._provider = provider
        self._group = group
        self._changed = changed
        self._tenants: dict[str, Tenant] = {}
        self._lost = {row.id: row for row in lost}
        self._gone: OrderedDict[str, str] = OrderedDict()

    @property
    def empty(self) -> bool:
        return not self._tenants

    @property
    def lost(self) -> list[Row]:
        return list(self._lost.values())

    def rows(self) -> list[Row]:
        """The lost ones first, then the others, oldest first."""
        return [*self.lost, *(tenant.row() for tenant in self._tenants.values())]

    async def create(self, asked: Create) -> Row:
        """Makes a sandbox. Raises `SandboxError`, with nothing left behind."""
        if len(self._tenants) >= SANDBOXES_MAX:
            raise SandboxError(
                f"there are {SANDBOXES_MAX} sandboxes already.",
                fix="end some: `tiltyard sandbox rm`.",
            )
        tenant = Tenant(
            id=self._new_id(),
            spec=_spec_of(asked),
            created_s=time.time(),
            deadline_s=time.time() + asked.ttl_s,
        )
        self._tenants[tenant.id] = tenant
        try:
            self._changed()  # the record names it before it is made
            sandbox = await self._made(tenant)
        except BaseException:
            self._tenants.pop(tenant.id, None)
            self._changed()
            raise
        tenant.sandbox = sandbox
        if tenant.id not in self._tenants:
            await _close_all([tenant])
            raise SandboxClosed(f"sandbox {tenant.id} was removed while it was being made.")
        loop = asyncio.get_running_loop()
        tenant.timer = loop.call_later(asked.ttl_s, self._overdue, tenant)
        return tenant.row()

    async def _made(self, tenant: Tenant) -> Sandbox:
        try:
            return await self._provider.create(tenant.spec)
        except SandboxDied as error:
            error.fix = "end the yard daemon, `tiltyard sandbox stop`, and try again."
            raise

    def find(self, id_: str) -> Sandbox:
        """Raises `UsageError` for an id that never was, `SandboxError` for what is gone."""
        tenant = self._tenants.get(id_)
        if tenant is not None and tenant.sandbox is not None:
            return tenant.sandbox
        if id_ in self._gone:
            raise SandboxClosed(f"sandbox {id_} {self._gone[id_]}", fix="create another.")
        if id_ in self._lost:
            raise lost_error(id_)
        raise unknown_error(id_)

    async def remove(self, ids: Iterable[str] | None) -> list[Row]:
        """Ends sandboxes, all of them for None, and tells how they were.

        Raises `UsageError` when an id is unknown; then none is ended. Raises `SandboxError` when
        one does not go; the others are ended.
        """
        if ids is None:
            wanted = [*self._lost, *self._tenants]
        else:
            wanted = list(dict.fromkeys(ids))
            for id_ in wanted:
                if id_ not in self._lost and id_ not in self._tenants:
                    self.find(id_)  # raises
        rows = [row for row in self.rows() if row.id in wanted]
        self._lost = {id_: row for id_, row in self._lost.items() if id_ not in wanted}
        ending = [self._take(id_, "was removed.") for id_ in wanted if id_ in self._tenants]
        await _close_all(ending)
        self._changed()
        return rows

    def _take(self, id_: str, why: str) -> Tenant:
        tenant = self._tenants.pop(id_)
        if tenant.timer is not None:
            tenant.timer.cancel()
        self._gone[id_] = why
        if len(self._gone) > GONE_KEPT_MAX:
            self._gone.popitem(last=False)
        return tenant

    def _overdue(self, tenant: Tenant) -> None:
        when = time.strftime("%H:%M:%S", time.localtime(tenant.deadline_s))
        self._take(tenant.id, f"is gone: its time was over at {when}.")
        self._group.create_task(self._end(tenant))

    async def _end(self, tenant: Tenant) -> None:
        try:
            await _close_all([tenant])
            self._changed()
        except SandboxError as error:
            # There is nobody to tell, and the others are not to end because of it.
            _log.error("sandbox_close_failed", sandbox_id=tenant.id, error=str(error))

    def _new_id(self) -> str:
        while True:
            id_ = f"sb-{secrets.token_hex(3)}"
            if id_ not in self._tenants and id_ not in self._lost and id_ not in self._gone:
                return id_


async def _close_all(tenants: list[Tenant]) -> None:
    sandboxes = [tenant.sandbox for tenant in tenants if tenant.sandbox is not None]
    for sandbox in sandboxes:
        sandbox.destroy()
    failed: SandboxError | None = None
    for sandbox in sandboxes:
        try:
            await sandbox.close()
        except SandboxError as error:
            failed = error
    if failed is not None:
        raise failed


def _spec_of(asked: Create) -> SandboxSpec:
    return SandboxSpec(
        limits=Limits(
            memory_bytes=asked.memory_bytes,
            pids=asked.pids,
            cpus=asked.cpus,
            open_files=asked.open_files,
            disk_bytes=asked.disk_bytes,
            inodes=asked.inodes,
        ),
        allow_unenforced=frozenset(asked.allow_unenforced),
        writable=asked.writable,
        network=Network(
            mode=asked.network,
            allow=tuple(asked.allow),
            bandwidth_up_bytes_s=asked.bandwidth_up_bytes_s,
            bandwidth_down_bytes_s=asked.bandwidth_down_bytes_s,
        ),
        # The node ends it as well, a little later than we do: then it was told of here.
        lifetime_s=min(max(asked.ttl_s + LIFETIME_SPARE_S, 1.0), TTL_S_MAX),
    )
