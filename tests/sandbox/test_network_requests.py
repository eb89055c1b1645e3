"""What a program may ask of the proxy, over HTTP and SOCKS5, as pure functions."""

import pytest
from hypothesis import given, strategies as st

from tiltyard.sandbox.network import socks
from tiltyard.sandbox.network.requests import (
    HEADERS_MAX,
    HttpRequest,
    RequestRefused,
    parse_head,
    refusal,
)


def parsed(*lines: str) -> HttpRequest:
    return parse_head("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")


def test_a_tunnel() -> None:
    asked = parsed("CONNECT Example.org:443 HTTP/1.1", "Host: other.example", "User-Agent: x")
    assert asked == HttpRequest(tunnel=True, host="Example.org", port=443, head=b"", body_bytes=0)
    assert parsed("CONNECT [2001:db8::1]:8443 HTTP/1.0").host == "[2001:db8::1]"


def test_a_request_is_written_anew() -> None:
    asked = parsed(
        "POST http://example.org:8080/a?b=http://c#d HTTP/1.1",
        "Host: victim.example",
        "Proxy-Connection: keep-alive",
        "Connection: X-Secret, content-length, host",
        "Keep-Alive: timeout=5",
        "X-Secret: 1",
        "Upgrade: h2c",
        "TE: trailers",
        "Proxy-Authorization: Basic eA==",
        "content-length: 5",
        "Accept: */*",
    )
    assert (asked.host, asked.port, asked.body_bytes) == ("example.org", 8080, 5)
    assert asked.head.split(b"\r\n") == [
        b"POST /a?b=http://c HTTP/1.1",
        b"Host: example.org:8080",
        b"accept: */*",
        b"Content-Length: 5",
        b"Connection: close",
        b"",
        b"",
    ]


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://a.example", "/"),
        ("HTTP://a.example/", "/"),
        ("http://a.example?x", "/?x"),
        ("http://a.example#x", "/"),
        ("http://a.example/http://b.example/", "/http://b.example/"),
        ("http://a.example//b.example", "//b.example"),
    ],
)
def test_targets(target: str, path: str) -> None:
    asked = parsed(f"GET {target} HTTP/1.1")
    assert (asked.host, asked.port) == ("a.example", 80)
    assert asked.head.startswith(f"GET {path} HTTP/1.1\r\nHost: a.example\r\n".encode())


@pytest.mark.parametrize(
    ("status", "lines"),
    [
        (400, ["GET / HTTP/1.1", "Host: a.example"]),
        (400, ["GET https://a.example/ HTTP/1.1"]),
        (400, ["GET ftp://a.example/ HTTP/1.1"]),
        (400, ["GET http:///x HTTP/1.1"]),
        (400, ["GET http://user@a.example/ HTTP/1.1"]),
        (400, ["GET http://a.example:80@b.example/ HTTP/1.1"]),
        (400, ["GET http://a.example\\@b.example/ HTTP/1.1"]),
        (400, ["GET http://a.example:0/ HTTP/1.1"]),
        (400, ["GET http://a.example:65536/ HTTP/1.1"]),
        (400, ["GET http://a.example:/ HTTP/1.1"]),
        (400, ["GET http://a%2eexample/ HTTP/1.1"]),
        (400, ["GET http://a.example/ x HTTP/1.1"]),
        (400, ["GET http://a.example/\x01 HTTP/1.1"]),
        (400, ["GET http://a.example/\xe9 HTTP/1.1"]),
        (400, ["GET http://a.example/ HTTP/2.0"]),
        (400, ["GET http://a.example/"]),
        (400, ["GET  http://a.example/ HTTP/1.1"]),
        (400, ["CONNECT a.example HTTP/1.1"]),
        (400, ["CONNECT a.example:x HTTP/1.1"]),
        (400, ["CONNECT http://a.example:80 HTTP/1.1"]),
        (400, ["CONNECT a.example:443 HTTP/1.1", "Host: a", "host: b"]),
        (400, ["G\0T http://a.example/ HTTP/1.1"]),
        (400, ["GET http://a.example/ HTTP/1.1", " folded: x"]),
        (400, ["GET http://a.example/ HTTP/1.1", "X: a", "\tfolded"]),
        (400, ["GET http://a.example/ HTTP/1.1", "Content-Length : 5"]),
        (400, ["GET http://a.example/ HTTP/1.1", "X\0: 5"]),
        (400, ["GET http://a.example/ HTTP/1.1", "X: a\nTransfer-Encoding: chunked"]),
        (400, ["GET http://a.example/ HTTP/1.1", "X: a\rY: b"]),
        (400, ["GET http://a.example/ HTTP/1.1", "X: a\0b"]),
        (400, ["GET http://a.example/ HTTP/1.1", "no colon"]),
        (400, ["GET http://a.example/ HTTP/1.1", ""]),
        (400, ["GET http://a.example/ HTTP/1.1", "Content-Length: 5", "Content-Length: 6"]),
        (400, ["GET http://a.example/ HTTP/1.1", "Content-Length: 5, 5"]),
        (400, ["GET http://a.example/ HTTP/1.1", "Content-Length: -5"]),
        (400, ["GET http://a.example/ HTTP/1.1", "Content-Length: +5"]),
        (400, ["GET http://a.example/ HTTP/1.1", "Content-Length: 0x5"]),
        (400, ["GET http://a.example/ HTTP/1.1", "Content-Length: 9999999999999999"]),
        (411, ["GET http://a.example/ HTTP/1.1", "Transfer-Encoding: chunked"]),
        (411, ["GET http://a.example/ HTTP/1.1", "transfer-encoding: xchunked"]),
        (411, ["GET http://a.example/ HTTP/1.1", "Content-Length: 5", "Transfer-Encoding: x"]),
        (431, ["GET http://a.example/ HTTP/1.1", *["X: y"] * (HEADERS_MAX + 1)]),
    ],
)
def test_requests_that_two_readers_could_understand_differently(
    status: int, lines: list[str]
) -> None:
    with pytest.raises(RequestRefused) as refused:
        parsed(*lines)
    assert refused.value.status == status


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_what_is_written_is_one_request(target: bytes, header: bytes) -> None:
    head = b"GET http://a.example/" + target + b" HTTP/1.1\r\nX: " + header + b"\r\n\r\n"
    try:
        asked = parse_head(head)
    except RequestRefused:
        return
    assert asked.head.count(b"\r\n\r\n") == 1
    assert asked.head.endswith(b"\r\n\r\n")
    assert sum(line.lower().startswith(b"host:") for line in asked.head.split(b"\r\n")) == 1
    assert b"\n" not in asked.head.replace(b"\r\n", b"")


@given(st.binary(max_size=400))
def test_garbage_is_refused_and_never_fails(head: bytes) -> None:
    with pytest.raises(RequestRefused):
        parse_head(head)


def test_a_refusal_says_so() -> None:
    answer = refusal(403, "b\u00fccher\r\nX: y")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize(
    ("rest", "host"),
    [
        (b"\x01\x7f\0\0\1", "127.0.0.1"),
        (b"\x04" + bytes(15) + b"\1", "::1"),
        (b"\x03\x0bexample.org", "example.org"),
        (b"\x03\x03a\0b", "a\0b"),
        (b"\x03\x02\xc3\xa9", "\xc3\xa9"),
        (b"\x03\x00", ""),
    ],
)
def test_socks_requests(rest: bytes, host: str) -> None:
    request = b"\x05\x01\0" + rest + b"\x01\xbb"
    assert socks.request_bytes(request[:5]) == len(request)
    assert socks.parse_request(request) == socks.SocksRequest(host=host, port=443)


@pytest.mark.parametrize(
    ("head", "code"),
    [
        (b"\x04\x01\0\x01\x7f", socks.SocksReply.FAILED),
        (b"\x05\x01\x01\x01\x7f", socks.SocksReply.FAILED),
        (b"\x05\x02\0\x01\x7f", socks.SocksReply.COMMAND_UNKNOWN),
        (b"\x05\x03\0\x01\x7f", socks.SocksReply.COMMAND_UNKNOWN),
        (b"\x05\x01\0\x02\x7f", socks.SocksReply.ADDRESS_UNKNOWN),
    ],
)
def test_socks_requests_that_are_not_served(head: bytes, code: socks.SocksReply) -> None:
    with pytest.raises(socks.SocksRefused) as refused:
        socks.request_bytes(head)
    assert refused.value.code is code
    assert socks.reply(code) == bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))
