"""The rules of the network, as pure functions: what is read, what is refused, what is decided."""

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.errors import SandboxRefused
from tiltyard.core.execution import Network, NetworkMode
from tiltyard.sandbox.network.addresses import NEVER, AddressKind, kind_of, unmapped
from tiltyard.sandbox.network.rules import (
    BANDWIDTH_BYTES_S_MAX,
    RULES_MAX,
    AddressRule,
    Cause,
    NameRule,
    Rules,
    parse_host,
    parse_rule,
    rules_of,
)

MODES_WITHOUT_PROXY = (NetworkMode.NONE, NetworkMode.LOOPBACK)


def allowing(*rules: str) -> Rules:
    return rules_of(Network(mode=NetworkMode.ALLOW, allow=rules))


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("8.8.8.8", "public"),
        ("2606:4700::1111", "public"),
        ("0.0.0.0", "unspecified"),  # noqa: S104 - the kernel takes it for the loopback
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("10.0.0.1", "private"),
        ("172.31.255.255", "private"),
        ("172.32.0.0", "public"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("192.0.0.8", "private"),
        ("198.18.0.1", "private"),
        ("203.0.113.9", "private"),
        ("240.0.0.1", "private"),
        ("255.255.255.255", "private"),
        ("fc00::1", "private"),
        ("fec0::1", "private"),
        ("4000::1", "private"),
        ("2001:db8::1", "private"),
        ("64:ff9b:1::1", "private"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("169.254.1.1", "link_local"),
        ("fe80::1", "link_local"),
        ("169.254.169.254", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("192.0.0.192", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:a9fe:a9fe", "metadata"),
        ("64:ff9b::8.8.8.8", "public"),
        ("64:ff9b::169.254.169.254", "metadata"),
        ("64:ff9b::10.0.0.1", "private"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("2002:808:808::1", "private"),
        ("::169.254.169.254", "metadata"),
        ("2001:0:1:2:3:4:5601:5601", "metadata"),  # Teredo: the client's address, inverted
    ],
)
def test_where_an_address_leads(address: str, kind: str) -> None:
    assert kind_of(ip_address(address)) == kind


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_is_judged_as_what_it_is(address: IPv4Address) -> None:
    mapped = IPv6Address(b"\0" * 10 + b"\xff\xff" + address.packed)
    assert unmapped(mapped) == address
    assert kind_of(mapped) is kind_of(address)
    assert kind_of(IPv6Address(bytes.fromhex("0064ff9b") + bytes(8) + address.packed)) is kind_of(
        address
    )
    tunnelled = kind_of(IPv6Address(b"\x20\x02" + address.packed + bytes(10)))
    assert tunnelled is not AddressKind.PUBLIC
    assert (tunnelled in NEVER) == (kind_of(address) in NEVER)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("_service.example", "_service.example"),
        ("localhost", "localhost"),
        ("1.2.3.4", "1.2.3.4"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("[::ffff:1.2.3.4]", "1.2.3.4"),
    ],
)
def test_hosts_in_their_usual_spelling(text: str, host: str) -> None:
    assert str(parse_host(text)) == host


@pytest.mark.parametrize(
    "text",
    [
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "127.0.0.01",
        "1.2.3.4.5",
        "example.0x7f",
        "example.1",
        "[1.2.3.4]",
        "[::1%lo]",
        "fe80::1%eth0",
        "::1/128",
        "",
        ".",
        "..",
        "a..b",
        "example.org..",
        ".example.org",
        "-a.example",
        "a-.example",
        "a" * 64 + ".example",
        "a." * 127 + "abc",
        "example.org\0.evil.example",
        "exa mple.org",
        "example.org\r\nHost: evil",
        "bücher.example",
        "example\u3002org",
        "\u212aexample.org",
        "\uff11\uff12\uff17.0.0.1",
        "user@example.org",
        "example.org/path",
        "example.org:80",
        "*.example.org",
        "ex%61mple.org",
    ],
)
def test_hosts_that_mean_nothing_or_two_things(text: str) -> None:
    assert parse_host(text) is None


@given(st.text())
def test_whatever_a_host_is_it_is_a_plain_name_or_address(text: str) -> None:
    host = parse_host(text)
    if isinstance(host, str):
        assert host.isascii()
        assert host == host.lower()
        assert not set(host) - set("abcdefghijklmnopqrstuvwxyz0123456789-_.")
        assert not host.rpartition(".")[2].isdigit()


def test_rules_of_names() -> None:
    assert parse_rule("Example.org.") == NameRule(
        name="example.org", below=False, ports=frozenset({80, 443})
    )
    assert parse_rule("*.example.org:8443") == NameRule(
        name="example.org", below=True, ports=frozenset({8443})
    )
    assert parse_rule("example.org:*") == NameRule(name="example.org", below=False, ports=None)


@pytest.mark.parametrize(
    ("rule", "network", "ports"),
    [
        ("10.1.0.0/16:22", "10.1.0.0/16", {22}),
        ("127.0.0.1:*", "127.0.0.1/32", None),
        ("2001:db8::1", "2001:db8::1/128", {80, 443}),
        ("[2001:db8::/32]:1", "2001:db8::/32", {1}),
        ("0.0.0.0/0", "0.0.0.0/0", {80, 443}),
    ],
)
def test_rules_of_addresses(rule: str, network: str, ports: set[int] | None) -> None:
    parsed = parse_rule(rule)
    assert isinstance(parsed, AddressRule)
    assert str(parsed.network) == network
    assert parsed.ports == (None if ports is None else frozenset(ports))


@pytest.mark.parametrize(
    "rule",
    [
        "",
        "*",
        "*.",
        "a.*.example",
        "*example.org",
        "https://example.org",
        "example.org/x",
        "example.org:",
        "example.org:0",
        "example.org:65536",
        "example.org:http",
        "example.org:80:90",
        "exam ple.org",
        "bücher.example",
        "10.1.2.3/16",
        "10.1.0.0/33",
        "[10.1.0.0]:80",
        "[example.org]:80",
        "2130706433",
        "0x7f.1",
        "169.254.169.254",
        "169.254.0.0/16",
        "fd00:ec2::254",
        "[fe80::1]:80",
        "fe80::1%eth0",
        "224.0.0.1",
        "0.0.0.0",  # noqa: S104 - a rule, not a bind
        "::",
        "::ffff:127.0.0.1",
        "x" * 100_000,
    ],
)
def test_rules_that_cannot_be_meant(rule: str) -> None:
    with pytest.raises(SandboxRefused, match="network rule") as refused:
        allowing(rule)
    assert refused.value.fix
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("network", "problem"),
    [
        (Network(mode="ether"), "unknown network mode"),  # type: ignore[arg-type]
        (Network(allow=("example.org",)), "make no sense with the mode none"),
        (Network(mode=NetworkMode.OPEN, allow=("example.org",)), "make no sense"),
        (Network(mode=NetworkMode.ALLOW, allow=("a.example",) * (RULES_MAX + 1)), "more than"),
        (Network(mode=NetworkMode.ALLOW, allow="abc"), "are a tuple"),  # type: ignore[arg-type]
        (Network(mode=NetworkMode.LOOPBACK, bandwidth_up_bytes_s=10**6), "makes no sense"),
        (Network(mode=NetworkMode.OPEN, bandwidth_up_bytes_s=0), "bandwidth_up_bytes_s is 0"),
        (Network(mode=NetworkMode.OPEN, bandwidth_down_bytes_s=-1), "must be a whole number"),
        (
            Network(mode=NetworkMode.OPEN, bandwidth_down_bytes_s=BANDWIDTH_BYTES_S_MAX + 1),
            "must be a whole number",
        ),
        (
            Network(mode=NetworkMode.OPEN, bandwidth_up_bytes_s=1e6),  # type: ignore[arg-type]
            "must be a whole number",
        ),
    ],
)
def test_networks_that_are_refused(network: Network, problem: str) -> None:
    with pytest.raises(SandboxRefused, match=problem) as refused:
        rules_of(network)
    assert refused.value.fix


def test_equal_networks_are_one() -> None:
    first, second = (Network(mode=NetworkMode.ALLOW, allow=("a.example",)) for _ in range(2))
    assert {first, second} == {first}


@pytest.mark.parametrize(
    ("name", "port", "cause"),
    [
        ("example.org", 443, "rule"),
        ("example.org", 22, "port_not_allowed"),
        ("sub.example.org", 443, "name_not_allowed"),
        ("below.example.net", 443, "rule"),
        ("far.below.example.net", 443, "rule"),
        ("example.net", 443, "name_not_allowed"),
        ("evilexample.net", 443, "name_not_allowed"),
        ("example.org.evil.example", 443, "name_not_allowed"),
        ("any.example", 9999, "rule"),
    ],
)
def test_names_that_are_allowed(name: str, port: int, cause: str) -> None:
    rules = allowing("example.org", "*.example.net", "any.example:*", "10.0.0.0/8")
    judgement = rules.judge_name(name, port)
    assert judgement.cause == cause
    assert judgement.allowed == (cause == "rule")


@pytest.mark.parametrize(
    ("address", "port", "cause"),
    [
        ("8.8.8.8", 443, "rule"),
        ("10.0.0.1", 443, "private"),
        ("127.0.0.1", 443, "loopback"),
        ("169.254.169.254", 80, "metadata"),
        ("fe80::1", 80, "link_local"),
        ("224.0.0.1", 80, "multicast"),
        ("0.0.0.0", 80, "unspecified"),  # noqa: S104
        ("192.168.7.7", 8080, "rule"),
        ("192.168.7.7", 8081, "private"),
        ("::ffff:192.168.7.7", 8080, "private"),
    ],
)
def test_what_an_allowed_name_may_resolve_to(address: str, port: int, cause: str) -> None:
    rules = allowing("example.org:*", "192.168.0.0/16:8080")
    judgement = rules.judge_address(ip_address(address), port, own=False, named=True)
    assert judgement.cause == cause
    assert judgement.allowed == (cause == "rule")


def test_no_rule_opens_what_gives_out_credentials() -> None:
    everything = allowing("0.0.0.0/0:*", "[::/0]:*")
    for address in ("169.254.169.254", "169.254.0.1", "fe80::1", "fd00:ec2::254", "0.1.2.3", "::"):
        judgement = everything.judge_address(ip_address(address), 80, own=True, named=False)
        assert not judgement.allowed, address
    for address in ("127.0.0.1", "10.0.0.1", "8.8.8.8", "::1", "fc00::1"):
        judgement = everything.judge_address(ip_address(address), 80, own=True, named=False)
        assert judgement.cause is Cause.RULE, address


def test_addresses_without_a_name() -> None:
    rules = allowing("example.org", "8.8.4.4:53")
    public = ip_address("8.8.8.8")
    refused = rules.judge_address(public, 443, own=False, named=False)
    assert (refused.allowed, refused.cause) == (False, Cause.ADDRESS_NOT_ALLOWED)
    other_port = rules.judge_address(ip_address("8.8.4.4"), 443, own=False, named=False)
    assert other_port.cause is Cause.PORT_NOT_ALLOWED


def test_the_machines_own_addresses() -> None:
    address = ip_address("8.8.8.8")
    own = allowing("example.org").judge_address(address, 443, own=True, named=True)
    assert (own.allowed, own.cause) == (False, Cause.OWN)
    by_rule = allowing("8.8.8.8").judge_address(address, 443, own=True, named=False)
    assert by_rule.allowed


def test_open_is_open_to_the_public_only() -> None:
    rules = rules_of(Network(mode=NetworkMode.OPEN))
    assert rules.judge_name("anything.example", 25).allowed
    assert rules.judge_address(ip_address("8.8.8.8"), 25, own=False, named=False).allowed
    for address in ("10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "fd00::1"):
        for named in (True, False):
            judgement = rules.judge_address(ip_address(address), 80, own=False, named=named)
            assert not judgement.allowed, address


@pytest.mark.parametrize("mode", MODES_WITHOUT_PROXY)
def test_without_a_proxy_nothing_is_allowed(mode: NetworkMode) -> None:
    rules = rules_of(Network(mode=mode))
    assert not rules.judge_name("example.org", 443).allowed
