"""The protocol of the yard's socket: what it takes, and that garbage is an error, no more."""

import json

import pytest
from hypothesis import given, strategies as st

from tiltyard.cli.yard.wire import (
    BODY_BYTES_MAX,
    HEADER,
    Create,
    Exec,
    Failed,
    Frame,
    Kind,
    Remove,
    Row,
    Size,
    State,
    Table,
    WireError,
    frame,
    message_frame,
    parse_header,
    parse_reply,
    parse_request,
)
from tiltyard.core.execution import Limit, NetworkMode

CREATE = Create(
    memory_bytes=1,
    pids=2,
    cpus=0.5,
    open_files=3,
    disk_bytes=4,
    inodes=5,
    allow_unenforced=[Limit.CPU, Limit.MEMORY],
    writable=False,
    network=NetworkMode.ALLOW,
    allow=["example.org"],
    ttl_s=1.0,
)
EXEC = Exec(
    id="sb-1",
    argv=["a", "ü"],
    cwd="/",
    env={"A": "b"},
    timeout_s=None,
    terminal=Size(rows=1, columns=2),
    user="nobody",
    cpu_s=3,
    idle_s=0.5,
    output_bytes_max=6,
)
ROW = Row(id="sb-1", state=State.LOST, created_s=1.0, deadline_s=2.0)


def cut(raw: bytes) -> Frame:
    kind, length = parse_header(raw[: HEADER.size])
    assert len(raw) == HEADER.size + length
    return Frame(kind=kind, body=raw[HEADER.size :])


@pytest.mark.parametrize("request_", [CREATE, EXEC, Remove(ids=None), Remove(ids=["sb-1"])])
def test_requests_come_back_as_they_were(request_: Create | Exec | Remove) -> None:
    assert parse_request(cut(message_frame(request_))) == request_


@pytest.mark.parametrize("reply", [Table(rows=[ROW]), Failed(message="m", fix=None, usage=True)])
def test_replies_come_back_as_they_were(reply: Table | Failed) -> None:
    assert parse_reply(cut(message_frame(reply))) == reply


@pytest.mark.parametrize(
    "change",
    [
        {"ttl_s": 0},
        {"ttl_s": 1e12},
        {"ttl_s": "1"},
        {"extra": 1},
        {"memory_bytes": 1.5},
        {"memory_bytes": None},
        {"allow_unenforced": ["everything"]},
        {"do": "destroy"},
    ],
)
def test_a_request_that_does_not_fit_is_refused(change: dict[str, object]) -> None:
    body = json.dumps({**CREATE.model_dump(mode="json"), **change}).encode()

    with pytest.raises(WireError, match="malformed"):
        parse_request(Frame(kind=Kind.MESSAGE, body=body))


def test_an_empty_argv_is_refused() -> None:
    body = json.dumps({**EXEC.model_dump(mode="json"), "argv": []}).encode()

    with pytest.raises(WireError, match="argv"):
        parse_request(Frame(kind=Kind.MESSAGE, body=body))


@given(st.binary(min_size=HEADER.size, max_size=HEADER.size))
def test_any_header_is_bounded_or_refused(header: bytes) -> None:
    try:
        kind, length = parse_header(header)
    except WireError:
        return
    assert kind in Kind
    assert length <= BODY_BYTES_MAX


@given(st.sampled_from(Kind), st.binary(max_size=200) | st.text().map(str.encode))
def test_garbage_is_refused_with_our_own_error(kind: Kind, body: bytes) -> None:
    for parse in (parse_request, parse_reply):
        with pytest.raises(WireError):
            parse(Frame(kind=kind, body=body))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_any_json_is_refused_or_a_request(document: object) -> None:
    try:
        parse_request(Frame(kind=Kind.MESSAGE, body=json.dumps(document).encode()))
    except WireError:
        return
    assert isinstance(document, dict)


def test_too_much_is_refused_before_it_is_sent() -> None:
    with pytest.raises(WireError):
        frame(Kind.STDOUT, bytes(BODY_BYTES_MAX + 1))
