"""What an address is, from the tables that the standards and the clouds publish. Pure.

Only what is known to be public counts as public: an address of a range that nobody has assigned yet
is refused. An IPv4 address that is wrapped into an IPv6 one is judged as what it stands for.
"""

import re
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address


class AddressKind(StrEnum):
    """Where an address leads."""

    PUBLIC = "public"
    PRIVATE = "private"
    """A network of somebody's own, or a range that is reserved."""
    LOOPBACK = "loopback"
    LINK_LOCAL = "link_local"
    METADATA = "metadata"
    """A cloud's service that gives out credentials to whoever asks from the machine."""
    MULTICAST = "multicast"
    UNSPECIFIED = "unspecified"


NEVER = frozenset(
    {
        AddressKind.LINK_LOCAL,
        AddressKind.METADATA,
        AddressKind.MULTICAST,
        AddressKind.UNSPECIFIED,
    }
)
"""No rule opens these."""

_V4 = tuple(
    (IPv4Network(network), kind)
    for network, kind in (
        ("100.100.100.200/32", AddressKind.METADATA),  # Alibaba Cloud
        ("168.63.129.16/32", AddressKind.METADATA),  # Azure, though it looks public
        ("192.0.0.192/32", AddressKind.METADATA),  # Oracle Cloud
        ("169.254.169.254/32", AddressKind.METADATA),  # nearly all others
        ("0.0.0.0/8", AddressKind.UNSPECIFIED),  # the kernel takes 0.0.0.0 for the loopback
        ("127.0.0.0/8", AddressKind.LOOPBACK),
        ("169.254.0.0/16", AddressKind.LINK_LOCAL),
        ("224.0.0.0/4", AddressKind.MULTICAST),
        ("10.0.0.0/8", AddressKind.PRIVATE),
        ("100.64.0.0/10", AddressKind.PRIVATE),  # shared by the customers of a carrier
        ("172.16.0.0/12", AddressKind.PRIVATE),
        ("192.168.0.0/16", AddressKind.PRIVATE),
        ("192.0.0.0/24", AddressKind.PRIVATE),  # protocol assignments
        ("192.0.2.0/24", AddressKind.PRIVATE),  # documentation, and the two below
        ("198.51.100.0/24", AddressKind.PRIVATE),
        ("203.0.113.0/24", AddressKind.PRIVATE),
        ("192.88.99.0/24", AddressKind.PRIVATE),  # relays of 6to4
        ("198.18.0.0/15", AddressKind.PRIVATE),  # benchmarks
        ("240.0.0.0/4", AddressKind.PRIVATE),  # reserved, and the broadcast address
    )
)
_V6 = tuple(
    (IPv6Network(network), kind)
    for network, kind in (
        ("fd00:ec2::/32", AddressKind.METADATA),  # AWS: metadata, time and names
        ("fd20:ce::254/128", AddressKind.METADATA),  # Google Cloud
        ("::/128", AddressKind.UNSPECIFIED),
        ("::1/128", AddressKind.LOOPBACK),
        ("fe80::/10", AddressKind.LINK_LOCAL),
        ("ff00::/8", AddressKind.MULTICAST),
        ("2001::/23", AddressKind.PRIVATE),  # protocol assignments, Teredo among them
        ("2001:db8::/32", AddressKind.PRIVATE),  # documentation
        ("2002::/16", AddressKind.PRIVATE),  # 6to4
        ("3fff::/20", AddressKind.PRIVATE),  # documentation
        ("2000::/3", AddressKind.PUBLIC),  # all that is given out; the rest is reserved or private
    )
)
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""NAT64: what a network with IPv6 only makes of a name that has only an IPv4 address."""
_MAPPED = IPv6Network("::ffff:0:0/96")
_COMPATIBLE = IPv6Network("::/96")
_NUMERIC = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


def opens_nothing(network: IPv4Network | IPv6Network) -> bool:
    """True when a rule for this network could allow no address at all."""
    if isinstance(network, IPv4Network):
        return any(network.subnet_of(never) for never, kind in _V4 if kind in NEVER)
    # A mapped address is judged as the IPv4 address that it is, so it meets IPv4 rules only.
    closed = [never for never, kind in _V6 if kind in NEVER]
    return any(network.subnet_of(never) for never in (*closed, _MAPPED))


def unmapped(address: Address) -> Address:
    """The IPv4 address that `::ffff:a.b.c.d` is for every socket; any other one as it is."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def kind_of(address: Address) -> AddressKind:
    """Where it leads."""
    address = unmapped(address)
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _V4 if address in network), AddressKind.PUBLIC)
    own = next((kind for network, kind in _V6 if address in network), AddressKind.PRIVATE)
    if address in _TRANSLATED:
        return kind_of(_last_four(address))
    wrapped = _wrapped(address)
    if own is AddressKind.PRIVATE and wrapped is not None and kind_of(wrapped) in NEVER:
        return kind_of(wrapped)
    return own


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address at the far end of an old tunnel."""
    if address.teredo is not None:
        return address.teredo[1]
    if address.sixtofour is not None:
        return address.sixtofour
    return _last_four(address) if address in _COMPATIBLE else None


def _last_four(address: IPv6Address) -> IPv4Address:
    return IPv4Address(address.packed[12:])


def parse_address(text: str) -> Address | None:
    """An address in its one usual spelling; None for anything else, also with a zone."""
    if "%" in text or "/" in text:
        return None
    try:
        return unmapped(ip_address(text))
    except ValueError:
        return None


def parse_network(text: str) -> IPv4Network | IPv6Network | None:
    """An address or a network whose host bits are zero; None for anything else."""
    if "%" in text:
        return None
    try:
        return ip_network(text)
    except ValueError:
        return None


def is_numeric(name: str) -> bool:
    """True for what the C library would read as an address: `2130706433`, `0x7f.1`, `127.1`."""
    return _NUMERIC.fullmatch(name.removesuffix(".").rpartition(".")[2]) is not None
