"""The network, which a sandbox does not have: doors of the host, of the neighbour, of the world.

The host counts who knocks at its own doors (`host.py`), whatever a program says. Cases about the
egress proxy, for sandboxes that have a way out, are in `egress.py`.
"""

from tiltyard.core.execution import Reason
from tiltyard.sandbox.conformance.case import Case, Family, Program
from tiltyard.sandbox.conformance.judging import ends_with, program, refuses_all, together

_CONNECTS = """
import socket
def reaches(family, kind, address):
    with socket.socket(family, kind) as one:
        one.settimeout(0.5)
        one.connect(address)
        one.sendall(b"x")
        if kind == socket.SOCK_DGRAM:
            one.recv(1)
    return address
"""
_HOST_DOORS = (
    _CONNECTS
    + """
tcp, udp, door = number_of("HOST_TCP"), number_of("HOST_UDP"), os.environ["HOST_DOOR"]
for address in ("127.0.0.1", "127.0.0.2", "0.0.0.0"):
    attempt(f"TCP {address}", lambda: reaches(socket.AF_INET, socket.SOCK_STREAM, (address, tcp)))
    attempt(f"UDP {address}", lambda: reaches(socket.AF_INET, socket.SOCK_DGRAM, (address, udp)))
for address in ("::1", "::ffff:127.0.0.1"):
    attempt(f"TCP {address}", lambda: reaches(socket.AF_INET6, socket.SOCK_STREAM, (address, tcp)))
attempt("abstract", lambda: reaches(socket.AF_UNIX, socket.SOCK_STREAM, "\\0" + door))
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/systemd/notify", "/dev/log"):
    attempt(path, lambda: reaches(socket.AF_UNIX, socket.SOCK_STREAM, path))
end()
"""
)
_WORLD = (
    _CONNECTS
    + """
places = [("169.254.169.254", 80), ("169.254.170.2", 80), ("100.100.100.200", 80),
          ("10.0.0.1", 443), ("192.0.2.1", 80), ("192.168.0.1", 53), ("172.17.0.1", 2375),
          ("198.51.100.7", 443)]
for place in places:
    attempt(f"TCP {place[0]}", lambda: reaches(socket.AF_INET, socket.SOCK_STREAM, place))
    attempt(f"UDP {place[0]}", lambda: reaches(socket.AF_INET, socket.SOCK_DGRAM, place))
attempt("metadata by IPv6",
        lambda: reaches(socket.AF_INET6, socket.SOCK_STREAM, ("fd00:ec2::254", 80)))
for name in ("metadata.google.internal", "example.com", "localhost.localdomain"):
    attempt(f"resolving {name}", lambda: socket.getaddrinfo(name, 80))
with open("/proc/net/dev") as table:
    names = {line.split(":")[0].strip() for line in table.readlines()[2:]}
claim("an interface beside the loopback", bool(names - {"lo"}), names)
with open("/proc/net/route") as table:
    claim("a route", len(table.readlines()) > 1, "none")
end()
"""
)
_FAMILIES = """
import socket
for family in range(46):
    if family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6):
        continue
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
        attempt(f"family {family} kind {kind}", lambda: socket.socket(family, kind))
for protocol in (1, 6, 255):
    attempt(f"raw {protocol}", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, protocol))
    attempt(f"raw 6 {protocol}", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, protocol))
attempt("packet", lambda: socket.socket(17, socket.SOCK_DGRAM, 0x300))
attempt("family with high bits", lambda: call("socket", 16 | 1 << 32, 3, 0))
end()
"""
_CONFIGURES = """
import fcntl, socket, struct
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
request = struct.pack("16sH22s", b"lo", 0x1043, b"")
for name, number in (("loopback up", 0x8914), ("address", 0x8916), ("hardware address", 0x8924),
                     ("route", 0x890b), ("bridge", 0x89a0), ("tunnel", 0x89f1), ("queue", 0x8943)):
    attempt(name, lambda: fcntl.ioctl(one, number, request))
attempt("tunnel device", lambda: opens_for_writing("/dev/net/tun"))
attempt("marking packets", lambda: one.setsockopt(socket.SOL_SOCKET, 36, 1))
attempt("transparent proxying", lambda: one.setsockopt(socket.SOL_IP, 19, 1))
attempt("packet filter table", lambda: one.getsockopt(socket.SOL_IP, 64, 100))
end()
"""
_LISTENS = """
import socket
server = socket.socket()
try:
    server.bind(("127.0.0.1", 46173))
    server.listen()
except OSError as error:
    fact("listening", error)
if os.fork():
    os._exit(0)
os.closerange(0, 3)
time.sleep(60)
"""
_TO_NEIGHBOUR = (
    _CONNECTS
    + """
attempt("the neighbour's port",
        lambda: reaches(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 46173)))
end()
"""
)


def _case(name: str, tries: str, source: str, safe: str, *, slow: bool = False) -> Case:
    return Case(
        name=name,
        family=Family.NETWORK,
        tries=tries,
        safe=safe,
        programs=(Program(source=source),),
        judge=refuses_all(),
        slow=slow,
    )


CASES = (
    _case(
        "host-services",
        "services of the host on its loopback and its abstract sockets",
        _HOST_DOORS,
        "nobody knocks, as the host itself counts",
    ),
    _case(
        "metadata-and-world",
        "the cloud's metadata address, private networks, the world, name servers",
        _WORLD,
        "there is no interface, no route and no answer",
    ),
    _case(
        "socket-families",
        "sockets of every other family: netlink, packet, vsock, AF_ALG, and raw ones",
        _FAMILIES,
        "refused",
    ),
    _case(
        "network-settings",
        "brings interfaces up, sets addresses, routes and tunnels",
        _CONFIGURES,
        "refused",
    ),
    Case(
        name="neighbours-port",
        family=Family.NETWORK,
        tries="a port that the neighbour listens on",
        safe="each has a loopback of its own",
        programs=(Program(source=_TO_NEIGHBOUR),),
        beside=Program(source=_LISTENS),
        judge=together(program(0, ends_with(Reason.EXIT)), refuses_all()),
        slow=True,
    ),
)
