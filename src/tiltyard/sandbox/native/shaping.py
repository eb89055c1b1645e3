"""Reading a sandbox's bandwidth limits and counters back from the kernel, over its netlink socket.

The socket was made in the sandbox's network namespace and answers for that one, whoever uses it.
"""

import socket
import struct
from collections.abc import Iterator

from tiltyard.sandbox.network.decisions import Bandwidth

UP, DOWN = 0x10001, 0x10002
"""The two classes; the same as in native/network.c."""
READ_TIMEOUT_S = 5.0
_ANSWER_BYTES_MAX = 65_536
_HEADER = struct.Struct("=IHHII")
_ABOUT = struct.Struct("=BBHiIII")
_ATTRIBUTE = struct.Struct("=HH")
_LOOPBACK_INDEX = 1
_NLM_F_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_RTM_NEWTCLASS, _RTM_GETTCLASS = 40, 42
_TCA_OPTIONS, _TCA_STATS2 = 2, 7
_TCA_HTB_PARMS, _TCA_HTB_RATE64 = 1, 6
_TCA_STATS_BASIC = 1
_TYPE_MASK = 0x3FFF


def read_bandwidth(netlink: socket.socket) -> Bandwidth:
    """Asks the kernel; may wait for its lock on all interfaces. Raises OSError."""
    netlink.settimeout(READ_TIMEOUT_S)
    about = _ABOUT.pack(socket.AF_UNSPEC, 0, 0, _LOOPBACK_INDEX, 0, 0, 0)
    length = _HEADER.size + len(about)
    netlink.send(_HEADER.pack(length, _RTM_GETTCLASS, _NLM_F_REQUEST_DUMP, 0, 0) + about)
    classes: dict[int, tuple[int, int]] = {}
    while not _take(netlink.recv(_ANSWER_BYTES_MAX), classes):
        pass
    up_rate, up_bytes = classes.get(UP, (None, 0))
    down_rate, down_bytes = classes.get(DOWN, (None, 0))
    return Bandwidth(
        up_bytes_s=up_rate, down_bytes_s=down_rate, up_bytes=up_bytes, down_bytes=down_bytes
    )


def _take(answer: bytes, classes: dict[int, tuple[int, int]]) -> bool:
    """Takes the classes out of one answer, as rate and count. True when it was the last."""
    at = 0
    while at + _HEADER.size <= len(answer):
        length, kind, _, _, _ = _HEADER.unpack_from(answer, at)
        if kind == _NLMSG_DONE:
            return True
        if kind == _NLMSG_ERROR or length < _HEADER.size:
            raise OSError(f"the kernel does not tell its classes: message {kind}")
        if kind == _RTM_NEWTCLASS:
            body = answer[at + _HEADER.size : at + length]
            classes[_ABOUT.unpack_from(body)[4]] = _rate_and_count(body[_ABOUT.size :])
        at += (length + 3) & ~3
    return False


def _rate_and_count(attributes: bytes) -> tuple[int, int]:
    rate = count = 0
    for kind, value in _attributes(attributes):
        if kind == _TCA_OPTIONS:
            options = dict(_attributes(value))
            (rate,) = struct.unpack_from("=I", options[_TCA_HTB_PARMS], 8)
            if _TCA_HTB_RATE64 in options:
                (rate,) = struct.unpack("=Q", options[_TCA_HTB_RATE64])
        elif kind == _TCA_STATS2:
            (count,) = struct.unpack_from("=Q", dict(_attributes(value))[_TCA_STATS_BASIC])
    return rate, count


def _attributes(block: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(block):
        length, kind = _ATTRIBUTE.unpack_from(block, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & _TYPE_MASK, block[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3
