"""Connecting to a server for a program: judging first, then exactly what was judged."""

import asyncio
import errno
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address

from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.network.addresses import Address
from tiltyard.sandbox.network.decisions import EgressLog, Form
from tiltyard.sandbox.network.lookups import Lookups, LookupsBusy
from tiltyard.sandbox.network.rules import Cause, Rules, parse_host

CONNECT_TIMEOUT_S = 10.0
CONNECT_TRIES_MAX = 3
BUFFER_BYTES = 512 * 1024
"""Each way of each connection: the memory of sockets is the whole machine's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A connection that a program asks for."""

    form: Form
    host: str
    """As the program named it; nothing is known about it."""
    port: int


class NotConnected(Exception):
    """There is no connection. `cause` says which rule refused it; None: the server did."""

    def __init__(self, cause: Cause | None) -> None:
        super().__init__(str(cause))
        self.cause = cause


class Outward:
    """Makes the connections of one sandbox."""

    def __init__(
        self, sandbox_id: SandboxId, *, rules: Rules, lookups: Lookups, log: EgressLog
    ) -> None:
        self._sandbox_id = sandbox_id
        self._rules = rules
        self._lookups = lookups
        self._log = log

    async def connect(self, wanted: Wanted) -> socket.socket:
        """A connected socket, the caller's to close. Raises `NotConnected`."""
        host = parse_host(wanted.host)
        if host is None:
            raise self._denied(wanted, Cause.MALFORMED)
        named = isinstance(host, str)
        addresses = await self._resolved(wanted, host) if isinstance(host, str) else (host,)
        refusal: tuple[Cause, Address] | None = None
        tries = 0
        for address in addresses:
            judgement = self._rules.judge_address(
                address, wanted.port, own=is_own(address), named=named
            )
            if not judgement.allowed:
                refusal = refusal or (judgement.cause, address)
            elif tries < CONNECT_TRIES_MAX:
                tries += 1
                self._decided(wanted, allowed=True, cause=judgement.cause, address=str(address))
                if connected := await _connected(address, wanted.port):
                    return connected
        if tries or refusal is None:
            raise NotConnected(None)
        raise self._denied(wanted, refusal[0], address=str(refusal[1]))

    async def _resolved(self, wanted: Wanted, name: str) -> tuple[Address, ...]:
        judgement = self._rules.judge_name(name, wanted.port)
        if not judgement.allowed:
            raise self._denied(wanted, judgement.cause)
        addresses: tuple[Address, ...] = ()
        try:
            addresses = await self._lookups.resolve(name, by=self._sandbox_id)
        except LookupsBusy:
            raise self._denied(wanted, Cause.LOOKUPS_BUSY) from None
        except TimeoutError:
            pass  # as good as none
        if not addresses:
            raise self._denied(wanted, Cause.UNRESOLVED)
        return addresses

    def _denied(self, wanted: Wanted, cause: Cause, *, address: str = "") -> NotConnected:
        self._decided(wanted, allowed=False, cause=cause, address=address)
        return NotConnected(cause)

    def _decided(self, wanted: Wanted, *, allowed: bool, cause: Cause, address: str) -> None:
        self._log.decided(
            form=wanted.form,
            host=wanted.host,
            port=wanted.port,
            allowed=allowed,
            cause=cause,
            address=address,
        )


def is_own(address: Address) -> bool:
    """True when an address is one of this machine's: only such a one can be bound to.

    Asked anew each time, because a machine's addresses change. Where that cannot be told, or where
    the kernel lets any address be bound to (`ip_nonlocal_bind`), an address counts as own.
    """
    try:
        with socket.socket(_family(address), socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError as error:
        return error.errno not in {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}
    return True


async def _connected(address: Address, port: int) -> socket.socket | None:
    try:
        far = socket.socket(_family(address), socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError:
        return None  # no descriptor left, or no such family here
    try:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            far.setsockopt(socket.SOL_SOCKET, buffer, BUFFER_BYTES)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(far, (str(address), port))
    except OSError:
        far.close()
        return None
    except BaseException:
        far.close()
        raise
    return far


def _family(address: Address) -> socket.AddressFamily:
    return socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
