"""What was decided about each connection out of a sandbox: logged, counted, kept for the caller."""

import time
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import structlog

from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.network.rules import Cause

KEPT_MAX = 1000
HOST_CHARS_MAX = 255
"""What is kept of the host that a program named; a name has no more."""

_log = structlog.get_logger(__name__)


class Form(StrEnum):
    """In which form a connection was asked for."""

    CONNECT = "connect"
    HTTP = "http"
    SOCKS5 = "socks5"


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressDecision:
    """One connection that a program asked for."""

    at_s: float
    """Seconds since the epoch."""
    sandbox_id: SandboxId
    form: Form
    host: str
    """As the program named it, cut, and with what cannot be printed escaped."""
    port: int
    allowed: bool
    cause: Cause
    address: str
    """The address that was decided about; empty when it did not come to one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressCounts:
    """How much went out of one sandbox, and how much was kept from it."""

    allowed: int
    denied: int
    up_bytes: int
    down_bytes: int
    open: int
    """Connections at this moment, also those whose request is still awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """What the kernel holds one sandbox's network to, read from outside."""

    up_bytes_s: int | None
    """None: not limited."""
    down_bytes_s: int | None
    """None: not limited."""
    up_bytes: int
    """What passed since the start, packet headers included; 0 where it is not limited."""
    down_bytes: int


class Egress(Protocol):
    """What the owner of a sandbox can see of its way out."""

    @property
    def decisions(self) -> tuple[EgressDecision, ...]:
        """The last ones, oldest first; `counts` tells how many there were."""
        ...

    @property
    def counts(self) -> EgressCounts: ...

    async def bandwidth(self) -> Bandwidth:
        """Reads limits and counters back from the kernel. Raises `SandboxClosed` after its end."""
        ...


class EgressLog:
    """The last decisions about one sandbox, and the counts of all."""

    def __init__(self, sandbox_id: SandboxId) -> None:
        self._sandbox_id = sandbox_id
        self._kept: deque[EgressDecision] = deque(maxlen=KEPT_MAX)
        self._allowed = 0
        self._denied = 0
        self.up_bytes = 0
        self.down_bytes = 0
        self.open = 0

    @property
    def decisions(self) -> tuple[EgressDecision, ...]:
        """The last ones, oldest first; `counts` tells how many there were."""
        return tuple(self._kept)

    @property
    def counts(self) -> EgressCounts:
        return EgressCounts(
            allowed=self._allowed,
            denied=self._denied,
            up_bytes=self.up_bytes,
            down_bytes=self.down_bytes,
            open=self.open,
        )

    def decided(
        self, *, form: Form, host: str, port: int, allowed: bool, cause: Cause, address: str
    ) -> None:
        """Takes up one decision."""
        said = host[:HOST_CHARS_MAX].encode("unicode_escape").decode("ascii")[:HOST_CHARS_MAX]
        if allowed:
            self._allowed += 1
        else:
            self._denied += 1
        decision = EgressDecision(
            at_s=time.time(),
            sandbox_id=self._sandbox_id,
            form=form,
            host=said,
            port=port,
            allowed=allowed,
            cause=cause,
            address=address,
        )
        self._kept.append(decision)
        _log.info(
            "egress_allowed" if allowed else "egress_denied",
            sandbox_id=self._sandbox_id,
            form=form,
            host=said,
            port=port,
            cause=cause,
            address=address,
        )
