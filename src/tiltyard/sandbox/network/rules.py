"""What a sandbox may connect to: reading the rules of a spec, and deciding by them. Pure.

A name is judged before it is resolved, so that asking for a name is no way to talk to whoever
answers for it; each address that it resolves to is judged again, so that whoever answers for an
allowed name decides nothing about this machine's own networks.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network

from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import Network, NetworkMode
from tiltyard.sandbox.network.addresses import (
    NEVER,
    Address,
    AddressKind,
    is_numeric,
    kind_of,
    opens_nothing,
    parse_address,
    parse_network,
)

RULES_MAX = 256
PORTS_DEFAULT = frozenset({80, 443})
BANDWIDTH_BYTES_S_MIN = 4096
"""Slower than this, one packet takes seconds and connections time out."""
BANDWIDTH_BYTES_S_MAX = 2**40
NAME_CHARS_MAX = 253
_LABEL = r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_RULE = re.compile(r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<plain>[^:]*))(?::(?P<port>\d{1,5}|\*))?")
_RULE_FIX = (
    "write a name (`example.org`, `*.example.org`, `xn--` for other alphabets), an address or a "
    "network (`192.0.2.7`, `10.1.0.0/16`, `[2001:db8::1]`), and after it `:port` or `:*`."
)


class Cause(StrEnum):
    """Why something was allowed or refused."""

    RULE = "rule"
    """Allowed: a rule names it."""
    OPEN = "open"
    """Allowed: the sandbox may reach every public address."""
    NAME_NOT_ALLOWED = "name_not_allowed"
    ADDRESS_NOT_ALLOWED = "address_not_allowed"
    PORT_NOT_ALLOWED = "port_not_allowed"
    """A rule names it, for other ports."""
    MALFORMED = "malformed"
    """Neither a name nor an address in its usual spelling."""
    UNRESOLVED = "unresolved"
    """Allowed by name, but the name has no address, or none that was told in time."""
    LOOKUPS_BUSY = "lookups_busy"
    """Allowed by name, but it was not looked up: the sandbox's other look-ups do not end."""
    PRIVATE = "private"
    LOOPBACK = "loopback"
    OWN = "own"
    """An address of the machine itself."""
    LINK_LOCAL = "link_local"
    METADATA = "metadata"
    MULTICAST = "multicast"
    UNSPECIFIED = "unspecified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What a rule says of one name or one address."""

    allowed: bool
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """A name in lower case, without a dot at its end."""

    name: str
    below: bool
    """True for every name below it, and not for itself."""
    ports: frozenset[int] | None
    """None is any."""

    def names(self, name: str) -> bool:
        return name.endswith(f".{self.name}") if self.below else name == self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRule:
    """A range of addresses."""

    network: IPv4Network | IPv6Network
    ports: frozenset[int] | None
    """None is any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All the rules of one sandbox."""

    names: tuple[NameRule, ...] = ()
    addresses: tuple[AddressRule, ...] = ()
    public: bool = False
    """True: every name may be resolved, and every public address connected to."""

    def judge_name(self, name: str, port: int) -> Judgement:
        """Whether a name may be resolved and its addresses be judged."""
        if self.public:
            return Judgement(allowed=True, cause=Cause.OPEN)
        ports = [rule.ports for rule in self.names if rule.names(name)]
        return _by_port(ports, port, otherwise=Cause.NAME_NOT_ALLOWED)

    def judge_address(self, address: Address, port: int, *, own: bool, named: bool) -> Judgement:
        """Whether an address may be connected to.

        `own`: it is one of this machine's. `named`: it is what an allowed name resolved to.
        """
        kind = kind_of(address)
        if kind in NEVER:
            return Judgement(allowed=False, cause=Cause(kind))
        covering = [rule.ports for rule in self.addresses if address in rule.network]
        by_rule = _by_port(covering, port, otherwise=Cause.ADDRESS_NOT_ALLOWED)
        if by_rule.allowed:
            return by_rule
        if own and kind is not AddressKind.LOOPBACK:
            return Judgement(allowed=False, cause=Cause.OWN)
        if kind is not AddressKind.PUBLIC:
            return Judgement(allowed=False, cause=Cause(kind))
        if named or self.public:
            return Judgement(allowed=True, cause=Cause.OPEN if self.public else Cause.RULE)
        return by_rule


def _by_port(found: list[frozenset[int] | None], port: int, *, otherwise: Cause) -> Judgement:
    if any(ports is None or port in ports for ports in found):
        return Judgement(allowed=True, cause=Cause.RULE)
    return Judgement(allowed=False, cause=Cause.PORT_NOT_ALLOWED if found else otherwise)


def parse_host(text: str) -> Address | str | None:
    """What a request names: an address, a name in lower case, or None when it is neither."""
    if text.startswith("[") and text.endswith("]"):
        address = parse_address(text[1:-1])
        return address if ":" in text else None
    return parse_address(text) or _parse_name(text)


def _parse_name(text: str) -> str | None:
    name = text.lower().removesuffix(".")
    if not text.isascii() or len(name) > NAME_CHARS_MAX or is_numeric(name):
        return None
    return name if _NAME.fullmatch(name) else None


def rules_of(network: Network) -> Rules:
    """Reads and checks what a spec says of its network. Raises `SandboxRefused`."""
    modes = ", ".join(NetworkMode)
    if network.mode not in tuple(NetworkMode):
        raise SandboxRefused(f"unknown network mode {network.mode!r}.", fix=f"use one of {modes}.")
    _check_bandwidth(network)
    if network.mode != NetworkMode.ALLOW and network.allow:
        raise SandboxRefused(
            f"network rules make no sense with the mode {network.mode}.",
            fix="use the mode `allow`, or leave the rules out.",
        )
    if not isinstance(network.allow, tuple):
        raise SandboxRefused(
            f"network rules are a tuple of strings, not {network.allow!r:.200}.",
            fix='write `allow=("example.org",)`.',
        )
    if len(network.allow) > RULES_MAX:
        raise SandboxRefused(
            f"{len(network.allow)} network rules are more than {RULES_MAX}.",
            fix="use `*.` for all names below one, and networks for addresses.",
        )
    parsed = [parse_rule(rule) for rule in network.allow]
    return Rules(
        names=tuple(rule for rule in parsed if isinstance(rule, NameRule)),
        addresses=tuple(rule for rule in parsed if isinstance(rule, AddressRule)),
        public=network.mode == NetworkMode.OPEN,
    )


def parse_rule(text: str) -> NameRule | AddressRule:
    """Reads one rule. Raises `SandboxRefused` with what is wrong and how to write it."""
    bare = text.count(":") > 1 and not text.startswith("[")  # IPv6 without a port
    found = _RULE.fullmatch(f"[{text}]" if bare else text)
    if found is None:
        raise _wrong(text, "is not of the form of one")
    host, port = found["plain"] or found["bracketed"] or "", found["port"]
    ports = PORTS_DEFAULT if port is None else None if port == "*" else frozenset({int(port)})
    if ports is not None and not all(1 <= each <= 65_535 for each in ports):
        raise _wrong(text, "has no port between 1 and 65535")
    network = parse_network(host)
    if (network is not None and network.version == 6) != (found["bracketed"] is not None):
        raise _wrong(text, "puts brackets elsewhere than around an IPv6 address")
    if network is not None and opens_nothing(network):
        raise _wrong(text, "names only addresses that no rule opens")
    if network is not None:
        return AddressRule(network=network, ports=ports)
    below = host.startswith("*.")
    name = _parse_name(host.removeprefix("*."))
    if name is None:
        raise _wrong(text, "holds neither a name nor an address in its usual spelling")
    return NameRule(name=name, below=below, ports=ports)


def _wrong(text: str, problem: str) -> SandboxRefused:
    return SandboxRefused(f"the network rule {text[:200]!r} {problem}.", fix=_RULE_FIX)


def _check_bandwidth(network: Network) -> None:
    proxied = network.mode in {NetworkMode.ALLOW, NetworkMode.OPEN}
    for name in ("bandwidth_up_bytes_s", "bandwidth_down_bytes_s"):
        rate = getattr(network, name)
        if rate is None:
            continue
        if not proxied:
            raise SandboxRefused(
                f"{name} makes no sense with the network mode {network.mode}.",
                fix="leave it out, or use the mode `allow` or `open`.",
            )
        if type(rate) is not int or not BANDWIDTH_BYTES_S_MIN <= rate <= BANDWIDTH_BYTES_S_MAX:
            raise SandboxRefused(
                f"a limit cannot be held: {name} is {rate!r}, and must be a whole number from "
                f"{BANDWIDTH_BYTES_S_MIN} to {BANDWIDTH_BYTES_S_MAX}.",
                fix="correct it.",
            )
