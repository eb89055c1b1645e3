"""Each network mode from inside a sandbox, with the programs that people use."""

import asyncio
import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.egress import (
    ALLOWED,
    LOOPBACK,
    CountingResolver,
    allowing,
    echo,
    serving,
)
from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import (
    Enforcement,
    ExecResult,
    Limit,
    Network,
    NetworkMode,
    SandboxSpec,
)
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.network.rules import Cause
from tiltyard.sandbox.network.variables import PORT
from tiltyard.sandbox.pool import Pool
from tiltyard.sandbox.supervised import Sandbox

pytestmark = pytest.mark.sandbox

MODES = (NetworkMode.NONE, NetworkMode.LOOPBACK, NetworkMode.ALLOW, NetworkMode.OPEN)
LOOPBACK_RULE = f"{LOOPBACK}:*"
NAMES = {ALLOWED: [LOOPBACK], "rebound.example": ["169.254.169.254"]}

Made = Callable[[Network], Awaitable[Sandbox]]


@pytest.fixture
def resolver() -> CountingResolver:
    return CountingResolver(NAMES)


@pytest.fixture
async def made(image: Image, spec: SandboxSpec, resolver: CountingResolver) -> AsyncIterator[Made]:
    """Makes sandboxes with a network; closed, with their provider, at the test's end."""
    async with NativeProvider(image=image, resolver=resolver) as provider:

        async def make(network: Network) -> Sandbox:
            return await provider.create(replace(spec, network=network))

        yield make


async def python(sandbox: Sandbox, source: str, *arguments: object) -> ExecResult:
    argv = ["python3", "-I", "-S", "-c", source, *map(str, arguments)]
    return await sandbox.run(argv, timeout_s=30)


GET = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode().strip())
"""


async def test_loopback_is_for_programs_inside(made: Made) -> None:
    sandbox = await made(Network(mode=NetworkMode.LOOPBACK))
    async with serving() as server:
        done = await python(
            sandbox,
            """
import os, socket, sys
one = socket.create_server(("127.0.0.1", 0))
six = socket.create_server(("::1", 0), family=socket.AF_INET6)
for server in (one, six):
    with socket.create_connection(server.getsockname()[:2]) as near:
        server.accept()[0].sendall(b"inside")
        print(near.recv(10).decode())
for address in (("127.0.0.1", int(sys.argv[1])), ("192.0.2.1", 80), ("8.8.8.8", 53)):
    try:
        socket.create_connection(address, 5)
        print("connected to", address)
    except OSError:
        pass
with open("/proc/net/dev") as table:
    print(*(line.split(":")[0].strip() for line in table.readlines()[2:]))
print([name for name in os.environ if "proxy" in name.lower()])
""",
            server.port,
        )
    assert done.stdout.text.split("\n") == ["inside", "inside", "lo", "[]", ""], done.stderr.text
    assert sandbox.egress is None


@pytest.mark.slow
async def test_urllib_finds_what_is_allowed_and_is_told_what_is_not(
    made: Made, resolver: CountingResolver
) -> None:
    sandbox = await made(allowing(f"{ALLOWED}:*", "rebound.example", LOOPBACK_RULE))
    async with serving() as server:
        done = await python(sandbox, GET, f"http://{ALLOWED}:{server.port}/x")
        assert done.stdout.text == "hello\n", done.stderr.text
        other = await python(sandbox, GET, "http://other.example/")
        rebound = await python(sandbox, GET, "http://rebound.example/")
    assert other.stdout.text.startswith("403 tiltyard: other.example:80 may not be reached")
    assert "metadata" in rebound.stdout.text
    assert resolver.asked == [ALLOWED, "rebound.example"]
    assert sandbox.egress is not None
    decisions = sandbox.egress.decisions
    assert [(each.host, each.allowed, each.cause) for each in decisions] == [
        (ALLOWED, True, Cause.RULE),
        ("other.example", False, Cause.NAME_NOT_ALLOWED),
        ("rebound.example", False, Cause.METADATA),
    ]
    assert {each.sandbox_id for each in decisions} == {sandbox.id}
    assert sandbox.egress.counts.down_bytes > 0


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("curl"), reason="curl is not on this machine")
async def test_curl_by_every_protocol(made: Made, resolver: CountingResolver) -> None:
    sandbox = await made(allowing(f"{ALLOWED}:*", LOOPBACK_RULE))
    proxy = f"{LOOPBACK}:{PORT}"
    async with serving() as server:
        url = f"http://{ALLOWED}:{server.port}/"
        ways: tuple[Sequence[str], ...] = (
            (),
            ("--proxytunnel",),
            ("--proxy", f"socks5h://{proxy}"),
            ("--data", "content"),
        )
        for options in ways:
            done = await sandbox.run(["curl", "-sS", "-m", "20", *options, url])
            expected = "body content" if "--data" in options else "hello"
            assert done.stdout.text == expected, (options, done.stderr.text)
        # Resolved by the program itself: there is nobody inside who would resolve it.
        for options in (["--proxy", f"socks5://{proxy}"], ["--noproxy", "*"]):
            done = await sandbox.run(["curl", "-sS", "-m", "20", *options, url])
            assert (done.exit_code, done.stdout.text) != (0, "hello")
    assert resolver.asked == [ALLOWED] * len(ways)
    assert sandbox.egress is not None
    assert {each.form for each in sandbox.egress.decisions} == {"http", "connect", "socks5"}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("git"), reason="git is not on this machine")
async def test_git_over_http(made: Made) -> None:
    reference = b"1234567890" * 4 + b"\trefs/heads/main\n"

    async def repository(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        text = b"ref: refs/heads/main\n" if b"/HEAD" in head else reference
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")
        writer.write(b"Content-Length: %d\r\n\r\n" % len(text) + text)
        await writer.drain()

    sandbox = await made(allowing(f"{ALLOWED}:*", LOOPBACK_RULE))
    async with serving(repository) as server:
        done = await sandbox.run(["git", "ls-remote", f"http://{ALLOWED}:{server.port}/r.git"])
    assert reference.decode() in done.stdout.text, done.stderr.text


@pytest.mark.slow
async def test_tls_goes_where_connect_says_whatever_the_sni(made: Made) -> None:
    """The proxy reads nothing of a tunnel, so a name in it can send it nowhere else."""
    sandbox = await made(allowing(f"{ALLOWED}:*", LOOPBACK_RULE))
    hello = b""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal hello
        hello = await reader.read(4096)
        writer.write(b"not tls")
        await writer.drain()

    async with serving(listen) as server:
        done = await python(
            sandbox,
            """
import socket, ssl, sys
near = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
near.sendall(f"CONNECT allowed.example:{sys.argv[1]} HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
near.recv(100)
context = ssl.create_default_context()
try:
    context.wrap_socket(near, server_hostname="victim.example")
except ssl.SSLError as error:
    print(error.reason)
""",
            server.port,
            PORT,
        )
    assert done.stdout.text == "WRONG_VERSION_NUMBER\n", done.stderr.text
    assert b"victim.example" in hello
    assert sandbox.egress is not None
    assert [each.host for each in sandbox.egress.decisions] == [ALLOWED]


def self_signed(directory: Path) -> tuple[Path, Path]:
    key, certificate = directory / "key.pem", directory / "certificate.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec"),
            *("-pkeyopt", "ec_paramgen_curve:P-256", "-keyout", key, "-out", certificate),
            *("-subj", f"/CN={ALLOWED}", "-addext", f"subjectAltName=DNS:{ALLOWED}"),
        ],
        check=True,
        capture_output=True,
    )
    return key, certificate


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl is not on this machine")
async def test_https_from_end_to_end(made: Made, tmp_path: Path) -> None:
    key, certificate = self_signed(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    sandbox = await made(allowing(f"{ALLOWED}:*", LOOPBACK_RULE))
    await sandbox.write("certificate.pem", certificate.read_bytes())
    async with serving(tls=context) as server:
        done = await python(
            sandbox,
            """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="certificate.pem")
print(urllib.request.urlopen(sys.argv[1], context=context, timeout=20).read().decode())
""",
            f"https://{ALLOWED}:{server.port}/",
        )
    assert done.stdout.text == "hello\n", done.stderr.text
    assert sandbox.egress is not None
    assert [each.form for each in sandbox.egress.decisions] == ["connect"]


@pytest.mark.slow
async def test_the_hosts_own_loopback_takes_a_rule(made: Made) -> None:
    source = """
import socket, sys
port = int(sys.argv[1])
try:
    socket.create_connection(("127.0.0.1", port), 5)
    print("directly")
except OSError:
    pass
near = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
near.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n".encode())
print(near.recv(100).split()[1].decode())
"""
    async with serving(echo) as server:
        for network, status in (
            (Network(mode=NetworkMode.OPEN), "403"),
            (allowing(f"{ALLOWED}:*"), "403"),
            (allowing(f"{LOOPBACK}:{server.port}"), "200"),
        ):
            done = await python(await made(network), source, server.port, PORT)
            assert done.stdout.text == f"{status}\n", (network, done.stderr.text)


@pytest.mark.slow
async def test_every_sandbox_has_a_proxy_of_its_own(made: Made) -> None:
    """The same port in each, and behind it what that sandbox may do."""
    first = await made(allowing(f"{ALLOWED}:*", LOOPBACK_RULE))
    second = await made(allowing("other.example"))
    without = await made(Network(mode=NetworkMode.LOOPBACK))
    async with serving() as server:
        url = f"http://{ALLOWED}:{server.port}/"
        assert (await python(first, GET, url)).stdout.text == "hello\n"
        assert (await python(second, GET, url)).stdout.text.startswith("403 ")
        connect = f"import socket; socket.create_connection(('127.0.0.1', {PORT}))"
        refused = await python(without, connect)
        assert "ConnectionRefusedError" in refused.stderr.text
    assert first.egress is not None
    assert second.egress is not None
    assert (first.egress.counts.denied, second.egress.counts.allowed) == (0, 0)


@pytest.mark.parametrize("mode", MODES)
async def test_other_ways_out_stay_closed(made: Made, mode: NetworkMode) -> None:
    sandbox = await made(Network(mode=mode))
    name = f"tiltyard-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as outside:
        outside.bind(f"\0{name}")
        outside.listen()
        done = await python(
            sandbox,
            """
import socket, sys
def attempt(what, act):
    try:
        act()
        print(what)
    except OSError:
        pass
for family in (socket.AF_NETLINK, socket.AF_PACKET, 40, 38, 44, 31):
    for kind in (socket.SOCK_RAW, socket.SOCK_DGRAM, socket.SOCK_STREAM):
        attempt(f"family {family} {kind}", lambda: socket.socket(family, kind))
for family in (socket.AF_INET, socket.AF_INET6):
    for protocol in (1, 6, 58, 255):
        attempt(f"raw {protocol}", lambda: socket.socket(family, socket.SOCK_RAW, protocol))
attempt("abstract", lambda: socket.socket(socket.AF_UNIX).connect("\\0" + sys.argv[1]))
with socket.socket() as one:
    attempt("mark", lambda: one.setsockopt(socket.SOL_SOCKET, 36, 1))
    attempt("priority", lambda: one.setsockopt(socket.SOL_SOCKET, 12, 0x10000))
    attempt("device", lambda: one.setsockopt(socket.SOL_SOCKET, 25, b"eth0\\0"))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    for address in (("8.8.8.8", 53), ("169.254.169.254", 80), ("255.255.255.255", 9)):
        attempt(address, lambda: one.sendto(b"x", address))
    import fcntl, struct
    up = struct.pack("16sh14x", b"lo", 0x49)
    attempt("interface", lambda: fcntl.ioctl(one, 0x8914, up))
attempt("settings", lambda: open("/proc/sys/net/ipv4/tcp_rmem", "w").write("4096 1 1"))
""",
            name,
        )
    assert (done.stdout.text, done.stderr.text) == ("", "")


@pytest.mark.slow
async def test_a_neighbours_abstract_socket(made: Made) -> None:
    network = Network(mode=NetworkMode.LOOPBACK)
    listen = (
        "import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0meet'); s.listen(); "
        "open('ready', 'w'); s.accept()"
    )
    first, second = await made(network), await made(network)
    async with asyncio.TaskGroup() as group:
        holding = group.create_task(first.run(["python3", "-ISc", listen], timeout_s=60))
        while "ready" not in {entry.name for entry in await first.list()}:
            pass
        connect = "import socket; socket.socket(socket.AF_UNIX).connect('\\0meet')"
        assert "ConnectionRefusedError" in (await python(second, connect)).stderr.text
        assert (await python(first, connect)).ok
    assert holding.result().ok


async def test_bad_networks_are_refused_and_the_pool_goes_on(
    image: Image, spec: SandboxSpec
) -> None:
    async with NativeProvider(image=image) as provider, Pool(provider, warm=1) as pool:
        for network in (
            Network(mode="wide"),  # type: ignore[arg-type]
            Network(allow=("example.org",)),
            allowing("http://example.org"),
            allowing("169.254.169.254"),
            Network(mode=NetworkMode.OPEN, bandwidth_up_bytes_s=-1),
        ):
            with pytest.raises(SandboxRefused) as refused:
                await pool.acquire(replace(spec, network=network))
            assert refused.value.fix
        with pytest.raises(SandboxRefused, match="kept interpreters have no network"):
            await provider.create(replace(spec, network=allowing("a.example")), for_zygotes=True)
        async with pool.sandbox(replace(spec, network=allowing("a.example"))) as sandbox:
            assert (await sandbox.run(["true"])).ok
            assert sandbox.enforced[Limit.NETWORK] is Enforcement.QDISC
