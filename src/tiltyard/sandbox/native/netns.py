"""The network of a sandbox, as the launcher is asked for it and as it hands it over."""

import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

from tiltyard.core.execution import Network, NetworkMode
from tiltyard.sandbox.network.variables import PORT

_ORDER = struct.Struct("<IIQQ")


class NetworkKind(IntEnum):
    """The same numbers as NETWORK_* in native/network.h."""

    NONE = 0
    LOOPBACK = 1
    PROXY = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOrder:
    """What is set up in the network namespace."""

    kind: NetworkKind = NetworkKind.NONE
    port: int = 0
    """Where the proxy listens, inside; 0 without one."""
    up_bytes_s: int = 0
    """0: not limited."""
    down_bytes_s: int = 0
    """0: not limited."""

    def encode(self) -> bytes:
        return _ORDER.pack(self.kind, self.port, self.up_bytes_s, self.down_bytes_s)


def order_of(network: Network) -> NetworkOrder:
    """What a spec's network takes. It has been checked."""
    match network.mode:
        case NetworkMode.NONE:
            return NetworkOrder()
        case NetworkMode.LOOPBACK:
            return NetworkOrder(kind=NetworkKind.LOOPBACK)
        case NetworkMode.ALLOW | NetworkMode.OPEN:
            return NetworkOrder(
                kind=NetworkKind.PROXY,
                port=PORT,
                up_bytes_s=network.bandwidth_up_bytes_s or 0,
                down_bytes_s=network.bandwidth_down_bytes_s or 0,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """What came with a sandbox that has a proxy. Both sockets are the owner's to close."""

    listener: socket.socket
    netlink: socket.socket
    errno: int
    """Why its bandwidth is not held; 0: it is."""
    call: str
    """The call that failed; empty when none did."""
