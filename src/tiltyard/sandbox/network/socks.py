"""Reading and answering SOCKS5 (RFC 1928). Pure: bytes in, values out.

Only CONNECT, and no authentication: who is at the other end is known from the socket. Names come
through unresolved (`socks5h`), which is the only way to use one: inside there is nobody to ask.
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address

from tiltyard.core.errors import TiltyardError

VERSION = 5
NO_AUTHENTICATION = 0
METHOD_ACCEPTED = bytes((VERSION, NO_AUTHENTICATION))
NO_METHOD_ACCEPTED = bytes((VERSION, 0xFF))
REQUEST_HEAD_BYTES = 5
"""As much of a request as tells its length: the first byte of the address is in it."""
_IPV4, _NAME, _IPV6 = 1, 3, 4
_CONNECT = 1


class SocksReply(IntEnum):
    """What a program is told."""

    CONNECTED = 0
    FAILED = 1
    NOT_ALLOWED = 2
    HOST_UNREACHABLE = 4
    REFUSED = 5
    COMMAND_UNKNOWN = 7
    ADDRESS_UNKNOWN = 8


class SocksRefused(TiltyardError):
    """A request that is not served, with what the program is told."""

    def __init__(self, code: SocksReply) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class SocksRequest:
    """A connection that is asked for."""

    host: str
    port: int


def request_bytes(head: bytes) -> int:
    """How long a request is, by its first `REQUEST_HEAD_BYTES`. Raises `SocksRefused`."""
    version, command, reserved, kind, first = head
    if version != VERSION or reserved != 0:
        raise SocksRefused(SocksReply.FAILED)
    if command != _CONNECT:
        raise SocksRefused(SocksReply.COMMAND_UNKNOWN)
    sizes = {_IPV4: 4, _NAME: 1 + first, _IPV6: 16}
    if kind not in sizes:
        raise SocksRefused(SocksReply.ADDRESS_UNKNOWN)
    return 4 + sizes[kind] + 2


def parse_request(request: bytes) -> SocksRequest:
    """Reads a whole request, of the length that `request_bytes` told."""
    address, (port,) = request[4:-2], struct.unpack(">H", request[-2:])
    match request[3]:
        case 1:
            host = str(IPv4Address(address))
        case 4:
            host = str(IPv6Address(address))
        case _:
            # Byte for byte: what is not a name is then found not to be one.
            host = address[1:].decode("latin-1")
    return SocksRequest(host=host, port=port)


def reply(code: SocksReply) -> bytes:
    """The answer to a request. The address in it is nobody's business and always zero."""
    return bytes((VERSION, code, 0, _IPV4)) + bytes(6)
