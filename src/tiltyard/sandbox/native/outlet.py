"""A sandbox's way out, as the provider holds it: its proxy, and the kernel's limits on it."""

import asyncio
import os
import socket
from collections.abc import Mapping

from tiltyard.core.errors import SandboxClosed, SandboxError, SandboxRefused
from tiltyard.core.execution import Enforcement, Limit, SandboxSpec
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.native.netns import Handed
from tiltyard.sandbox.native.shaping import read_bandwidth
from tiltyard.sandbox.network.decisions import Bandwidth, EgressCounts, EgressDecision
from tiltyard.sandbox.network.proxy import Proxies
from tiltyard.sandbox.network.rules import Rules


class Outlet:
    """Ends with its sandbox."""

    def __init__(
        self, sandbox_id: SandboxId, handed: Handed, *, proxies: Proxies, rules: Rules
    ) -> None:
        """Starts the proxy. Raises `SandboxDied` when the provider is closed."""
        self._sandbox_id = sandbox_id
        try:
            self._proxy = proxies.start(sandbox_id, handed.listener, rules)
        except BaseException:
            handed.listener.close()
            handed.netlink.close()
            raise
        self._netlink: socket.socket = handed.netlink
        self._reading = asyncio.Lock()
        self.unshaped = "" if not handed.call else f"{handed.call}: {os.strerror(handed.errno)}"
        """Why its bandwidth is not held; empty when it is, or when no limit was asked for."""

    @property
    def enforced(self) -> Mapping[Limit, Enforcement]:
        """By what its bandwidth is held; nothing when that is as everywhere."""
        return {Limit.NETWORK: Enforcement.NONE} if self.unshaped else {}

    @property
    def decisions(self) -> tuple[EgressDecision, ...]:
        return self._proxy.log.decisions

    @property
    def counts(self) -> EgressCounts:
        return self._proxy.log.counts

    async def bandwidth(self) -> Bandwidth:
        async with self._reading:
            if self._netlink.fileno() < 0:
                raise SandboxClosed(f"sandbox {self._sandbox_id} has ended.")
            try:
                return await asyncio.to_thread(read_bandwidth, self._netlink)
            except OSError as error:
                raise SandboxError(
                    f"the bandwidth of sandbox {self._sandbox_id} cannot be read: {error}."
                ) from None

    def stop(self) -> None:
        """Ends every connection, soon; idempotent."""
        self._proxy.stop()
        self._netlink.close()

    async def ended(self) -> None:
        """Returns when nothing of it is open. Raises `SandboxError` when that takes too long."""
        await self._proxy.ended()


async def check_bandwidth(outlet: Outlet, spec: SandboxSpec, id_: SandboxId) -> None:
    """Sees by the kernel's own word that the limits hold. Raises `SandboxRefused` when they do not.

    That is as for any limit: unless the spec lets it go unenforced.
    """
    asked = (spec.network.bandwidth_up_bytes_s, spec.network.bandwidth_down_bytes_s)
    if asked == (None, None):
        return
    problem = outlet.unshaped
    if not problem:
        held = await outlet.bandwidth()
        if (held.up_bytes_s, held.down_bytes_s) == asked:
            return
        problem = f"the kernel holds {held}"
    if Limit.NETWORK not in spec.allow_unenforced or not outlet.unshaped:
        raise SandboxRefused(
            f"sandbox {id_}: this machine cannot enforce: {Limit.NETWORK} ({problem}).",
            fix="load sch_htb and cls_bpf (`modprobe sch_htb cls_bpf`), or list it in "
            "`allow_unenforced`.",
        )
