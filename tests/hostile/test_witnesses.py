"""What the host measures decides, whatever programs say: judges with made-up evidence."""

from dataclasses import replace

import pytest

from hostile.test_suite import NAMED, observed
from tiltyard.core.execution import Enforcement, ExecResult, Limit, Reason
from tiltyard.sandbox.conformance.case import (
    Beyond,
    FileOperation,
    FileReply,
    FileRequest,
    Observed,
    Outcome,
    Surroundings,
)
from tiltyard.sandbox.conformance.far import FarSide
from tiltyard.sandbox.conformance.judging import ran

REFUSED = "tried x: refused EPERM\nend\n"
WENT = b"GET /allowed HTTP/1.1\r\nHost: far.example\r\n\r\n"


def reply(operation: FileOperation, content: bytes, **rest: object) -> FileReply:
    request = FileRequest(operation=operation, path="ticks")
    made = FileReply(request=request, content=content, elapsed_s=0.0)
    return replace(made, **rest)  # type: ignore[arg-type]


def ended(text: str, reason: Reason = Reason.EXIT) -> ExecResult:
    return replace(ran(observed(text))[0], reason=reason)


def outcome(name: str, seen: Observed) -> Outcome:
    return NAMED[name].judge(seen).outcome


@pytest.mark.parametrize(
    ("beyond", "expected"),
    [
        (Beyond(asked=("far.example",), arrived=(WENT,), denied=9), Outcome.CONTAINED),
        (Beyond(asked=("x.far.example",), arrived=(WENT,), denied=9), Outcome.ESCAPED),
        (Beyond(arrived=(WENT, b"GET /else HTTP/1.1"), denied=9), Outcome.ESCAPED),
        (Beyond(arrived=(WENT,), let_out=("10.0.0.1:80",), denied=9), Outcome.ESCAPED),
        (Beyond(asked=("far.example",), denied=9), Outcome.INCONCLUSIVE),
        (Beyond(asked=("far.example",), arrived=(WENT,)), Outcome.INCONCLUSIVE),
    ],
)
def test_names_are_counted_where_they_are_asked_for(beyond: Beyond, expected: Outcome) -> None:
    assert outcome("names-tunnelled", observed(REFUSED, beyond=beyond)) is expected


@pytest.mark.parametrize(
    ("arrived", "expected"),
    [
        (b"POST /outer HTTP/1.1\r\nContent-Length: 2\r\n\r\nab", Outcome.CONTAINED),
        (b"POST /outer HTTP/1.1\r\nContent-Length: 0\r\n\r\nGET /x", Outcome.ESCAPED),
        (b"GET /a HTTP/1.1\r\nX: GET /smuggled HTTP/1.1\r\n\r\n", Outcome.ESCAPED),
    ],
)
def test_a_request_in_a_request_is_seen_where_it_arrives(arrived: bytes, expected: Outcome) -> None:
    seen = observed(REFUSED, beyond=Beyond(arrived=(arrived,)))
    assert outcome("requests-smuggled", seen) is expected


def test_a_flood_is_measured_where_it_comes_from() -> None:
    for flooded_bytes, expected in (
        (0, Outcome.INCONCLUSIVE),
        (4 << 20, Outcome.CONTAINED),
        (60 << 20, Outcome.ESCAPED),
    ):
        seen = observed(REFUSED, beyond=Beyond(flooded_bytes=flooded_bytes))
        assert outcome("proxy-never-read", seen) is expected


def test_only_the_neighbour_may_use_its_way_out() -> None:
    witness = ended("end\n")
    for count, expected in ((1, Outcome.CONTAINED), (2, Outcome.ESCAPED), (0, Outcome.ESCAPED)):
        seen = observed(REFUSED, witness=witness, beyond=Beyond(by_neighbour=count))
        assert outcome("neighbours-proxy", seen) is expected
    silent = observed(REFUSED, witness=ended(""), beyond=Beyond(by_neighbour=1))
    assert outcome("neighbours-proxy", silent) is Outcome.ESCAPED


@pytest.mark.parametrize("name", ["memory-malloc", "memory-of-many-processes", "memory-full-pipes"])
@pytest.mark.parametrize(
    ("reason", "held_by", "expected"),
    [
        (Reason.OOM, Enforcement.CGROUP, Outcome.CONTAINED),
        (Reason.SIGNAL, Enforcement.CGROUP, Outcome.ESCAPED),
        (Reason.KILLED, Enforcement.CGROUP, Outcome.ESCAPED),
        (Reason.DISK, Enforcement.CGROUP, Outcome.ESCAPED),
        (Reason.SIGNAL, Enforcement.RLIMIT, Outcome.CONTAINED),
        (Reason.KILLED, Enforcement.RLIMIT, Outcome.ESCAPED),
    ],
)
def test_a_kill_for_memory_has_no_other_name(
    name: str, reason: Reason, held_by: Enforcement, expected: Outcome
) -> None:
    killed = replace(ended("", reason), exit_code=None, signal=9)
    seen = observed(results=(killed,), enforced={Limit.MEMORY: held_by})
    assert outcome(name, seen) is expected


BOMBS = ("fork-bomb", "fork-bomb-doubling", "thread-bomb", "zombies", "daemons-in-the-background")


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_that_did_not_go_off_is_not_contained(name: str) -> None:
    for seen_at_most, expected in (
        (1, Outcome.INCONCLUSIVE),
        (15, Outcome.INCONCLUSIVE),
        (16, Outcome.CONTAINED),
        (32 + 40, Outcome.CONTAINED),
        (32 + 41, Outcome.ESCAPED),
    ):
        seen = observed(
            results=(ended("fact made: 20\nend\n"),) * 4,
            around=Surroundings(tasks_max=seen_at_most),
        )
        assert outcome(name, seen) is expected, seen_at_most


def test_an_input_that_is_taken_without_end_is_seen() -> None:
    timed_out = (ended("", Reason.WALL_TIMEOUT),)
    for fed_bytes, expected in (
        (0, Outcome.INCONCLUSIVE),
        (128 << 10, Outcome.CONTAINED),
        (4 << 20, Outcome.ESCAPED),
    ):
        seen = observed(results=timed_out, fed_bytes=fed_bytes)
        assert outcome("input-never-read", seen) is expected


@pytest.mark.parametrize(
    ("first", "later", "expected"),
    [
        (b"7", b"7", Outcome.CONTAINED),
        (b"7", b"57", Outcome.ESCAPED),
        (b"", b"", Outcome.INCONCLUSIVE),
    ],
)
def test_a_daemon_is_known_by_what_it_writes(first: bytes, later: bytes, expected: Outcome) -> None:
    killed, waited = ended("", Reason.KILLED), ended("end\n")
    replies = tuple(reply(FileOperation.READ, each) for each in (first, later))
    seen = observed(results=(killed, killed, waited, waited), replies=replies)
    assert outcome("daemon-in-the-background", seen) is expected


def test_equal_chance_in_two_forks_is_seen() -> None:
    told = [f"fact {name}: {{}}\n" for name in "abcdefgh"]
    one, other, same = (
        "".join(line.format(f"{name}{place}") for place, line in enumerate(told))
        for name in ("one", "other", "one")
    )
    for pair, expected in (
        ((one, other), Outcome.CONTAINED),
        ((one, same), Outcome.ESCAPED),
        ((one,), Outcome.INCONCLUSIVE),
        ((one, ""), Outcome.INCONCLUSIVE),
    ):
        seen = observed("end\n", forked=tuple(map(ended, pair)))
        assert outcome("forks-chance", seen) is expected


def test_memory_of_a_snapshot_is_measured_on_the_host() -> None:
    for grown_bytes, expected in ((1 << 20, Outcome.CONTAINED), (1 << 30, Outcome.ESCAPED)):
        asked = reply(FileOperation.FORK, b"", grown_bytes=grown_bytes)
        asked = replace(asked, request=replace(asked.request, path="many-3"))
        assert outcome("frozen-sparse", observed("end\n", replies=(asked,))) is expected


def test_time_that_is_not_told_is_seen() -> None:
    for cpu_s, expected in ((1.0, Outcome.CONTAINED), (0.1, Outcome.ESCAPED)):
        seen = observed(results=(replace(ended("end\n"), cpu_s=cpu_s),))
        assert outcome("time-burnt-aside", seen) is expected


def test_something_of_the_hosts_in_a_fetched_tree_is_seen() -> None:
    for content, expected in ((b"ownown", Outcome.CONTAINED), (b"ownroot:x", Outcome.ESCAPED)):
        asked = reply(FileOperation.DOWNLOAD, content)
        asked = replace(asked, request=replace(asked.request, path="tree"))
        seen = observed("end\n", results=(ended("end\n"), ended("end\n")), replies=(asked,))
        assert outcome("tree-out-endless", seen) is expected


MAY_NOT_START = {"leaked-working-directory", "supervisor-as-program"}
"""There the safe outcome is that nothing of it comes about."""


def test_a_program_that_breaks_off_at_once_is_contained_by_no_case() -> None:
    failed = replace(ended(""), exit_code=1)
    for case in NAMED.values():
        if case.name in MAY_NOT_START or case.requests:
            continue
        seen = observed(
            results=tuple(failed for _ in case.programs), answers=("Traceback",) * len(case.runs)
        )
        assert case.judge(seen).outcome is not Outcome.CONTAINED, case.name


def test_an_argument_that_was_changed_on_its_way_is_seen() -> None:
    for text, expected in (
        ("$(touch /tmp/x);`id`;%s%n -rf", Outcome.CONTAINED),
        (";uid=0(root);%s%n -rf", Outcome.ESCAPED),
        ("", Outcome.INCONCLUSIVE),
    ):
        assert outcome("shell-in-a-name", observed(text)) is expected


async def test_the_far_side_answers_each_time_anew_and_forgets_between_cases() -> None:
    async with FarSide() as far:
        answers = [str((await far.resolve("flips.rebind.example"))[0]) for _ in range(4)]
        assert await far.resolve("nobody.example") == ()
        assert far.asked == [*["flips.rebind.example"] * 4, "nobody.example"]
        far.begin()
        assert far.asked == []
    assert answers == ["192.0.2.1", "127.0.0.1", "169.254.169.254", "169.254.169.254"]
