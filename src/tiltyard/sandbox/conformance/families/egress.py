"""The way out of a sandbox: what a program may talk its proxy into.

What was reached and resolved is taken from the far side (`far.py`), whose server and resolver are
the host's own; who knocked at the host's doors, from the host. That something is refused means
little unless the way that is allowed is open, so each program goes that way once, and the far side
must have seen it.
"""

from collections.abc import Collection
from dataclasses import replace

from tiltyard.core.execution import MIB, Limits, Network, NetworkMode
from tiltyard.sandbox.conformance.case import (
    NO_NETWORK,
    SMALL,
    Case,
    Family,
    Finding,
    Judge,
    Observed,
    Program,
)
from tiltyard.sandbox.conformance.families.egress_programs import (
    CROWDS,
    HOST_DOORS,
    METADATA_NAMES,
    NEIGHBOUR_GOES,
    NEIGHBOURS_PROXY,
    NEVER_READS,
    REBINDS,
    SMUGGLES,
    SPOOFS,
    TUNNELS_NAMES,
)
from tiltyard.sandbox.conformance.far import FAR
from tiltyard.sandbox.conformance.judging import (
    contained,
    ends_of,
    escaped,
    evidence_of,
    inconclusive,
    refuses_all,
    succeeds,
    together,
)

ALLOWED = Network(mode=NetworkMode.ALLOW, allow=(f"{FAR}:*", "127.0.0.1:{far}"))
REBINDING = replace(ALLOWED, allow=(*ALLOWED.allow, "*.rebind.example:*"))
OPEN = Network(mode=NetworkMode.OPEN)
FLOODED_BYTES_MAX = 16 * MIB
"""What the sockets on the way may hold for somebody who reads nothing, with some to spare."""


def _reached(*, only: Collection[str], asked: Collection[str]) -> Judge:
    """The far side saw requests to these paths only and names only of these, and the
    way that is allowed was gone. What the sandbox's own record tells agrees."""

    def judge(observed: Observed) -> Finding:
        beyond = observed.beyond
        strangers = sorted(set(beyond.asked) - set(asked))
        if strangers:
            return escaped(f"names were asked for: {', '.join(map(repr, strangers))}")
        for arrived in beyond.arrived:
            path = arrived.split(b" ", 2)[1:2] or [b"nothing"]
            if arrived and path[0].decode("latin-1") not in only:
                return escaped(f"the server was sent {arrived[:80]!r}")
        if not any(b" /allowed " in arrived for arrived in beyond.arrived):
            return inconclusive(f"not even the allowed way was open: {ends_of(observed)}")
        if not beyond.denied:
            return inconclusive("nothing that was refused is on record")
        return contained(f"{beyond.denied} refusals on record, {len(beyond.asked)} look-ups")

    return judge


def _only_let_out(*hosts: str) -> Judge:
    """The record names no other host as let out."""

    def judge(observed: Observed) -> Finding:
        let_out = {each.rpartition(":")[0] for each in observed.beyond.let_out}
        if let_out - set(hosts):
            return escaped(f"let out to {', '.join(sorted(let_out - set(hosts)))}")
        return contained(f"{observed.beyond.denied} refusals on record, and nobody else let out to")

    return judge


def _looked_up(*names: str) -> Judge:
    """These were resolved, so that what was refused is what they resolved to."""

    def judge(observed: Observed) -> Finding:
        missing = set(names) - set(observed.beyond.asked)
        if missing or not observed.beyond.denied:
            return inconclusive(f"not tried: {', '.join(sorted(missing))} {ends_of(observed)}")
        return contained(f"{observed.beyond.denied} refusals on record")

    return judge


def _named_rightly(observed: Observed) -> Finding:
    """Plain requests arrived under the server's own name, and nothing came for somebody else."""
    for arrived in observed.beyond.arrived:
        head = arrived.partition(b"\r\n\r\n")[0].lower()
        if head.startswith((b"get", b"post")) and b"victim" in head:
            return escaped(f"a request for somebody else arrived: {arrived[:120]!r}")
    greeted = sum(each[:1] == b"\x16" for each in observed.beyond.arrived)
    if not greeted:
        return inconclusive("no greeting of TLS arrived")
    return contained(f"{len(observed.beyond.arrived)} connections, all to the allowed server")


def _one_request_each(observed: Observed) -> Finding:
    """No connection to the server carried a second request, or a line of somebody else's."""
    for arrived in observed.beyond.arrived:
        head, _, rest = arrived.partition(b"\r\n\r\n")
        length = next(
            (
                line[15:]
                for line in head.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            ),
            b"0",
        )
        if b"smuggled" in head or len(rest) > int(length or b"0"):
            return escaped(f"a second request arrived: {arrived[:160]!r}")
    return contained(f"{len(observed.beyond.arrived)} requests arrived, each alone")


def _neighbour_went(observed: Observed) -> Finding:
    """The neighbour's own way stayed open, and only it used it."""
    done = observed.witness
    if done is None or not evidence_of(done.stdout.text).ends:
        words = "not asked" if done is None else f"{done.reason} {done.stderr.text[-100:]}"
        return escaped(f"the neighbour's way out does not work any more: {words}")
    if observed.beyond.by_neighbour != 1:
        return escaped(
            f"the neighbour's record tells of {observed.beyond.by_neighbour} connections"
        )
    return contained("only the neighbour used its way out")


def _held_back(observed: Observed) -> Finding:
    """The server could send no more than sockets hold."""
    flooded = observed.beyond.flooded_bytes
    if not flooded:
        return inconclusive(f"nothing was flooded: {ends_of(observed)}")
    if flooded > FLOODED_BYTES_MAX:
        return escaped(f"{flooded / MIB:.0f} MiB were taken for somebody who reads nothing")
    return contained(f"{flooded / MIB:.1f} MiB were taken at the most")


def _case(
    name: str,
    tries: str,
    safe: str,
    source: str,
    *judges: Judge,
    network: Network = ALLOWED,
    neighbour_goes: bool = False,
    limits: Limits = SMALL,
) -> Case:
    return Case(
        name=name,
        family=Family.EGRESS,
        tries=tries,
        safe=safe,
        programs=(Program(source=source),),
        judge=together(*judges),
        network=network,
        neighbour_network=ALLOWED if neighbour_goes else NO_NETWORK,
        witness=Program(source=NEIGHBOUR_GOES) if neighbour_goes else None,
        limits=limits,
        slow=True,
    )


CASES = (
    _case(
        "names-tunnelled",
        "names that carry a message, by every form of request, and name servers",
        "a name that is not allowed is never resolved, as the resolver itself counts",
        TUNNELS_NAMES,
        refuses_all(),
        _reached(only={"/allowed"}, asked={FAR}),
        _only_let_out(FAR),
    ),
    _case(
        "names-spoofed",
        "another name in Host, in TLS, in the target than in the connection",
        "each reaches the allowed server under its own name, or nobody",
        SPOOFS,
        refuses_all(),
        _only_let_out(FAR),
        _named_rightly,
    ),
    _case(
        "names-rebound",
        "allowed names whose answers are metadata, private, loopback and changing addresses",
        "every address is judged, and only the judged one connected to",
        REBINDS,
        refuses_all(),
        _only_let_out(FAR),
        _looked_up("door.rebind.example", "metadata6.rebind.example", "flips.rebind.example"),
        network=REBINDING,
    ),
    _case(
        "metadata-by-proxy",
        "metadata services and link-local addresses in every spelling, where all is open",
        "refused whatever the mode",
        METADATA_NAMES,
        refuses_all(),
        _only_let_out(),
        _looked_up("metadata.google.internal"),
        network=OPEN,
    ),
    _case(
        "host-by-proxy",
        "services on the host's own loopback, where all is open",
        "nobody knocks, as the host itself counts",
        HOST_DOORS,
        refuses_all(),
        _only_let_out(),
        _looked_up("localhost", FAR),
        network=OPEN,
    ),
    _case(
        "neighbours-proxy",
        "the way out that the neighbour has on the same port",
        "each loopback is its own; the neighbour's record tells only of the neighbour",
        NEIGHBOURS_PROXY,
        refuses_all(),
        _only_let_out(),
        _neighbour_went,
        network=replace(ALLOWED, allow=("nobody.example",)),
        neighbour_goes=True,
    ),
    _case(
        "requests-smuggled",
        "a second request in the first: lengths, chunks, folds, bare line ends, zero bytes",
        "the server sees one request for each connection",
        SMUGGLES,
        refuses_all(),
        _only_let_out(FAR),
        _one_request_each,
    ),
    _case(
        "proxy-crowd",
        "a thousand connections at once that say nothing, or half of it",
        "the neighbour's way out stays open",
        CROWDS,
        succeeds(),
        _neighbour_went,
        neighbour_goes=True,
        limits=replace(SMALL, open_files=1100),
    ),
    _case(
        "proxy-never-read",
        "asks for 64 MiB several times over and reads none of it",
        "the server is held back when the sockets are full",
        NEVER_READS,
        succeeds(),
        _held_back,
    ),
)
