"""Reading what a program asks of the proxy over HTTP, and writing what is asked of the server.

Pure. The reader is strict, because two readers who understand one text differently are how requests
are smuggled: what is not plainly right is refused. A request to a server is written anew from the
parts that were read, so that its target, its Host and its length agree, whatever the program sent.
"""

import re
from dataclasses import dataclass

from tiltyard.core.errors import TiltyardError

HEAD_BYTES_MAX = 32_768
HEADERS_MAX = 100
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST_LINE = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) (HTTP/1\.[01])")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):[ \t]*([\x20-\x7e\x80-\xff\t]*?)[ \t]*")
_AUTHORITY = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/?#\\%]+)(?::(?P<port>[0-9]{1,5}))?")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_OF_THIS_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_WRITTEN_ANEW = frozenset({b"host", b"content-length"})
_TITLES = {
    400: "Bad Request",
    403: "Forbidden",
    411: "Length Required",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


class RequestRefused(TiltyardError):
    """A request that the proxy does not serve. Told to the program, not to the user."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """One request to the proxy."""

    tunnel: bool
    """True for CONNECT: bytes both ways, of which the proxy reads none."""
    host: str
    port: int
    head: bytes
    """What the server is sent in place of what the program sent; empty for a tunnel."""
    body_bytes: int
    """How much of the body follows; 0 for a tunnel."""


def parse_head(head: bytes) -> HttpRequest:
    """Reads the head of a request, with the empty line that ends it. Raises `RequestRefused`."""
    lines = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
    if len(lines) - 1 > HEADERS_MAX:
        raise RequestRefused(431, "too many headers")
    line = _REQUEST_LINE.fullmatch(lines[0])
    if line is None:
        raise RequestRefused(400, "the request line is malformed")
    headers = [_header(each) for each in lines[1:]]
    method, target, version = line.groups()
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) > 1:
        raise RequestRefused(400, "more than one Host")
    if method == b"CONNECT":
        host, port = _authority(target.decode("ascii"), port_default=None)
        return HttpRequest(tunnel=True, host=host, port=port, head=b"", body_bytes=0)
    scheme, found, rest = target.decode("ascii").partition("://")
    if not found or scheme.lower() != "http":
        raise RequestRefused(400, "the target is no http:// URL; use CONNECT for https")
    cut = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    authority, path = rest[:cut], rest[cut:].partition("#")[0]
    host, port = _authority(authority, port_default=80)
    length = _length(headers)
    path = path if path.startswith("/") else f"/{path}"
    return HttpRequest(
        tunnel=False,
        host=host,
        port=port,
        head=_written(method, path, version, authority, headers, length),
        body_bytes=length or 0,
    )


def refusal(status: int, message: str) -> bytes:
    """The whole answer to a program whose request is not carried out."""
    body = f"tiltyard: {message}\n".encode("ascii", "backslashreplace")
    head = (
        f"HTTP/1.1 {status} {_TITLES[status]}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def _header(line: bytes) -> tuple[bytes, bytes]:
    # A line that begins with a space would continue the one above for some readers; a bare CR or LF
    # would end one. Neither matches.
    found = _HEADER.fullmatch(line)
    if found is None:
        raise RequestRefused(400, "a header is malformed")
    return found[1].lower(), found[2]


def _authority(text: str, *, port_default: int | None) -> tuple[str, int]:
    found = _AUTHORITY.fullmatch(text)
    port = port_default if found is None or found["port"] is None else int(found["port"])
    if found is None or port is None or not 1 <= port <= 65_535:
        raise RequestRefused(400, "the target is no host and port")
    return found["host"], port


def _length(headers: list[tuple[bytes, bytes]]) -> int | None:
    if any(name == b"transfer-encoding" for name, _ in headers):
        # Where a chunked body ends, proxy and server would have to agree about every byte of it.
        raise RequestRefused(411, "a request with a body needs a Content-Length")
    lengths = [value for name, value in headers if name == b"content-length"]
    if not lengths:
        return None
    if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
        raise RequestRefused(400, "the Content-Length is malformed")
    return int(lengths[0])


def _written(
    method: bytes,
    path: str,
    version: bytes,
    authority: str,
    headers: list[tuple[bytes, bytes]],
    length: int | None,
) -> bytes:
    named = {
        token.strip().lower()
        for name, value in headers
        if name == b"connection"
        for token in value.split(b",")
    }
    dropped = _OF_THIS_HOP | _WRITTEN_ANEW | named
    lines = [
        b"%s %s %s" % (method, path.encode("ascii"), version),
        b"Host: " + authority.encode("ascii"),
        *(b"%s: %s" % (name, value) for name, value in headers if name not in dropped),
    ]
    if length is not None:
        lines.append(b"Content-Length: %d" % length)
    # One request to a connection: a second one could name another server than was decided about.
    lines.append(b"Connection: close")
    return b"\r\n".join(lines) + b"\r\n\r\n"
