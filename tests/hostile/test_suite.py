"""The suite itself: it sees what is not contained, whoever says otherwise."""

import ast
import asyncio
import os
from dataclasses import replace
from importlib import resources

import pytest

from hostile.weak import Ajar, FallsSilent, Loosened, PlainMaker, StandsStill
from tiltyard.core.errors import UsageError
from tiltyard.core.execution import Enforcement, ExecResult, Limit, Reason, StreamCapture
from tiltyard.sandbox.conformance import judging
from tiltyard.sandbox.conformance.attack import Subject
from tiltyard.sandbox.conformance.case import (
    SMALL,
    Case,
    Family,
    HostMarks,
    Language,
    Observed,
    Outcome,
    Program,
    Surroundings,
)
from tiltyard.sandbox.conformance.catalogue import CASES, chosen
from tiltyard.sandbox.conformance.far import FarSide
from tiltyard.sandbox.conformance.host import Host, harm_between, left_behind
from tiltyard.sandbox.conformance.neighbour import PATIENCE, Patience
from tiltyard.sandbox.conformance.runner import run_case, run_cases
from tiltyard.sandbox.native.provider import NativeProvider

KNOCKS_TCP = """
import socket
socket.create_connection(("127.0.0.1", number_of("HOST_TCP")))
claim("x", False)
end()
"""
KNOCKS_UNIX = """
import socket
socket.socket(socket.AF_UNIX).connect("\\0" + os.environ["HOST_DOOR"])
end()
"""
NAMED = {case.name: case for case in CASES}


def case_of(source: str, judge: object = judging.refuses_all(), **rest: object) -> Case:
    made = Case(
        name="own",
        family=Family.ESCAPES,
        tries="something",
        safe="nothing",
        programs=(Program(source=source),),
        judge=judging.refuses_all(),
    )
    return replace(made, judge=judge, **rest)  # type: ignore[arg-type]


@pytest.fixture
def plain() -> Subject:
    return Subject(name="plain", maker=PlainMaker(), kept=None, places=frozenset)


@pytest.mark.slow
class TestWithoutContainment:
    """Programs that harm nobody, as ordinary processes."""

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            ("say(first_bytes(os.environ['HOST_SECRET_PATH']))\nend()", "private file of the host"),
            ("open(os.environ['HOST_SECRET_PATH'], 'w').write('x')\nend()", "secret changed"),
            (KNOCKS_TCP, "connections reached the host"),
            (KNOCKS_UNIX, "connections reached the host"),
            ("only_inside('pid')\nend()", "sharing the host's pid namespace"),
        ],
    )
    async def test_the_host_sees_for_itself(
        self, plain: Subject, host: Host, source: str, words: str
    ) -> None:
        report = await run_case(case_of(source), plain, host)

        assert report.outcome is Outcome.ESCAPED
        assert words in report.words

    @pytest.mark.parametrize(
        "name", ["names-of-the-host", "links-in-proc", "capabilities", "loosened-filter"]
    )
    async def test_real_cases_escape(self, plain: Subject, host: Host, name: str) -> None:
        report = await run_case(NAMED[name], plain, host)

        assert report.outcome is Outcome.ESCAPED, report.words

    async def test_a_program_that_says_too_little_is_not_contained(
        self, plain: Subject, host: Host
    ) -> None:
        for source in ("claim('x', False)\nos._exit(0)", "1 / 0", "end()"):
            report = await run_case(case_of(source), plain, host)
            assert report.outcome is Outcome.INCONCLUSIVE, report.words

    async def test_a_result_that_comes_late_is_seen_by_the_hosts_own_clock(
        self, plain: Subject, host: Host
    ) -> None:
        """Here a child that holds the output keeps the result back, and nobody says so."""
        held = Program(source="sleep 1 & echo end", language=Language.SHELL)
        case = case_of("", judging.in_time(0.5), programs=(held,))

        report = await run_case(case, plain, host)

        assert report.outcome is Outcome.ESCAPED, report.words
        assert "the host waited" in report.words

    @pytest.mark.parametrize(
        ("maker", "words"),
        [
            (StandsStill("calm", seconds=1.2), "the host itself stood still for 1."),
            (FallsSilent(times=1), "the neighbour did not answer for 0.5 s"),
        ],
    )
    async def test_an_outage_and_nothing_else_has_a_second_try(
        self, plain: Subject, host: Host, maker: PlainMaker, words: str
    ) -> None:
        patience = Patience(host_ms=1000, neighbour_s=0.5)
        subject = replace(plain, maker=maker, patience=patience)
        report = await run_case(case_of("claim('calm', False)\nend()"), subject, host)

        assert (report.outcome, report.tries) == (Outcome.CONTAINED, 2)
        assert f"second try; at the first {words}" in report.words

    async def test_an_outage_that_comes_again_is_an_escape(
        self, plain: Subject, host: Host
    ) -> None:
        patience = Patience(neighbour_s=0.5)
        subject = replace(plain, maker=FallsSilent(times=1000), patience=patience)
        report = await run_case(case_of("claim('calm', False)\nend()"), subject, host)

        assert (report.outcome, report.tries) == (Outcome.ESCAPED, 2)
        assert report.words.startswith("the neighbour did not answer for 0.5 s")

    async def test_who_escapes_anyhow_has_no_second_try(self, plain: Subject, host: Host) -> None:
        subject = replace(plain, patience=Patience(host_ms=0.0))
        report = await run_case(case_of("claim('calm', True)\nend()"), subject, host)

        assert (report.outcome, report.tries) == (Outcome.ESCAPED, 1)
        assert report.around.late

    async def test_no_kept_interpreters_is_told(self, plain: Subject, host: Host) -> None:
        report = await run_case(NAMED["zygote-memory"], plain, host)

        assert report.outcome is Outcome.NOT_TRIED

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("names-tunnelled", "cannot be given the suite's resolver"),
            ("input-never-read", "run no program that nobody waits for"),
            ("tree-out-traps", "sends and fetches no trees"),
            ("forks-chance", "no snapshots"),
        ],
    )
    async def test_what_a_provider_lacks_is_not_tried(
        self, plain: Subject, host: Host, name: str, words: str
    ) -> None:
        # The case's own programs are left out: nothing contains them here.
        case = replace(NAMED[name], programs=(Program(source="end()"),), racing=False)
        if name == "input-never-read":
            case = replace(case, programs=(Program(source="end()", fed_bytes=1),))
        report = await run_case(case, plain, host)

        assert report.outcome is Outcome.NOT_TRIED, report.words
        assert words in report.words


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["fork-bomb", "thread-bomb", "disk-fill", "inode-fill", "memory-malloc"]
)
async def test_limits_that_are_larger_than_they_should_be_are_seen(
    provider: NativeProvider, host: Host, name: str
) -> None:
    subject = Subject(name="loose", maker=Loosened(provider), kept=None, places=frozenset)

    report = await run_case(NAMED[name], subject, host)

    assert report.outcome is Outcome.ESCAPED, report.words


@pytest.mark.sandbox
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("names-tunnelled", "names were asked for"),
        ("names-rebound", "connections reached the host"),
        ("host-by-proxy", "connections reached the host"),
        ("neighbours-proxy", "far.example"),
    ],
)
async def test_a_way_out_that_leads_too_far_is_seen(
    provider: NativeProvider, far: FarSide, host: Host, name: str, words: str
) -> None:
    subject = Subject(name="ajar", maker=Ajar(provider), kept=None, places=frozenset, far=far)

    report = await run_case(NAMED[name], subject, host)

    assert report.outcome is Outcome.ESCAPED, report.words
    assert words in report.words


@pytest.mark.sandbox
@pytest.mark.slow
async def test_a_neighbour_that_is_hit_is_seen(subject: Subject, host: Host) -> None:
    """Here the neighbour harms itself, which looks the same from outside."""
    for hit in ("rm own", "kill -9 -1"):
        beside = Program(source=f"({hit}) >/dev/null 2>&1 & true", language=Language.SHELL)
        case = case_of("claim('x', False)\nhold()\nend()", beside=beside)
        report = await run_case(case, subject, host)
        assert report.outcome is Outcome.ESCAPED
        assert "neighbour" in report.words


@pytest.mark.sandbox
@pytest.mark.slow
async def test_reports_come_one_by_one(subject: Subject) -> None:
    case = case_of("attempt('x', lambda: os.stat('/nowhere'))\nend()")
    told: list[str] = []

    reports = await run_cases(
        [case, replace(case, name="other")],
        subject,
        started=lambda each: told.append(f"start {each.name}"),
        ended=lambda each: told.append(f"end {each.name}"),
    )

    assert told == ["start own", "end own", "start other", "end other"]
    assert [report.outcome for report in reports] == [Outcome.CONTAINED] * 2


async def test_the_host_sees_what_is_left(host: Host) -> None:
    before = host.read(frozenset())
    process = await asyncio.create_subprocess_exec("sleep", "60")
    opened = os.open("/dev/null", os.O_RDONLY)
    after = host.read(frozenset({"a cgroup"}))
    left = " ".join(left_behind(before, after))
    os.close(opened)
    process.kill()
    await process.wait()

    assert f"process {process.pid} sleep" in left
    assert "a cgroup" in left
    assert "descriptors" in left
    assert harm_between(before, after) == ()


def observed(text: str = "", **rest: object) -> Observed:
    result = ExecResult(
        reason=Reason.EXIT,
        exit_code=0,
        signal=None,
        stdout=StreamCapture(head=text.encode(), total_bytes=len(text)),
        stderr=StreamCapture(),
        wall_s=1.0,
        cpu_s=1.0,
        memory_peak_bytes=0,
    )
    secrets = {"secret": "5ecret", "neighbour_secret": "ne1ghbour"}
    marks = HostMarks(**secrets, hostname="h", boot_id="b", machine_id="")
    made = Observed(
        results=(result,),
        limits=SMALL,
        enforced=dict.fromkeys(Limit, Enforcement.CGROUP),
        isolation="root",
        marks=marks,
        around=Surroundings(),
    )
    return replace(made, **rest)  # type: ignore[arg-type]


REFUSED = "tried x: refused EPERM\nend\n"


@pytest.mark.parametrize(
    ("text", "rest", "outcome"),
    [
        (REFUSED, {}, Outcome.CONTAINED),
        ("tried x: refused EPERM\n", {}, Outcome.INCONCLUSIVE),
        ("tried x: refused EPERM\ntried y: WORKED 3\nend\n", {}, Outcome.ESCAPED),
        (REFUSED, {"survived": False}, Outcome.ESCAPED),
        (REFUSED, {"around": Surroundings(harm=("the clock",))}, Outcome.ESCAPED),
        (REFUSED, {"around": Surroundings(left=("process 7",))}, Outcome.ESCAPED),
        (REFUSED, {"around": Surroundings(late=("the host",))}, Outcome.ESCAPED),
        (REFUSED + "fact x: 5ecret\n", {}, Outcome.ESCAPED),
        (REFUSED + "fact x: ne1ghbour\n", {}, Outcome.ESCAPED),
    ],
)
def test_what_a_judgement_goes_by(text: str, rest: dict[str, object], outcome: Outcome) -> None:
    assert judging.finding_of(case_of(""), observed(text, **rest)).outcome is outcome


@pytest.mark.parametrize(
    ("text", "around", "only"),
    [
        (REFUSED, Surroundings(late=("the host",)), True),
        (REFUSED, Surroundings(late=("the host",), harm=("the clock",)), False),
        ("end\n", Surroundings(late=("the host",)), False),
        (REFUSED, Surroundings(), False),
    ],
)
def test_only_an_outage_is_worth_a_second_try(
    text: str, around: Surroundings, *, only: bool
) -> None:
    assert judging.late_only(case_of(""), observed(text, around=around)) is only


def test_patience_is_short() -> None:
    """Responsive is what a person at the machine would call so."""
    assert PATIENCE.host_ms <= 2000
    assert PATIENCE.neighbour_s <= 5


def test_a_sandbox_that_died_is_an_escape_unless_the_case_may_end_it() -> None:
    died = observed(REFUSED)
    died = replace(died, results=(replace(judging.ran(died)[0], reason=Reason.SANDBOX_DIED),))

    assert judging.finding_of(case_of(""), died).outcome is Outcome.ESCAPED
    lost = case_of("", ends_sandbox=True)
    assert judging.finding_of(lost, died).outcome is Outcome.CONTAINED


def test_what_is_known_to_be_open_is_told_apart_and_only_on_its_rung() -> None:
    open_ = observed("tried x: WORKED\nend\n")
    known = case_of("", known="see the document", known_rungs=frozenset({"root"}))

    assert judging.finding_of(known, open_).outcome is Outcome.KNOWN
    elsewhere = replace(open_, isolation="user-namespace")
    assert judging.finding_of(known, elsewhere).outcome is Outcome.ESCAPED
    harmed = replace(open_, around=Surroundings(harm=("the clock",)))
    assert judging.finding_of(known, harmed).outcome is Outcome.ESCAPED


def test_a_limit_that_holds_each_process_only_is_named() -> None:
    case = case_of("", needs=frozenset({Limit.MEMORY, Limit.CPU}))
    whole = {Enforcement.CGROUP}

    assert not judging.not_enforced(case, dict.fromkeys(Limit, Enforcement.CGROUP), whole)
    said = judging.not_enforced(
        case, {Limit.MEMORY: Enforcement.RLIMIT, Limit.CPU: Enforcement.NONE}, whole
    )
    assert said == "cpu (held by none), memory (held by rlimit)"


def test_a_refusal_by_the_kernel_is_none_by_policy() -> None:
    judge = judging.refuses_all(by={"EPERM"})

    assert judge(observed(REFUSED)).outcome is Outcome.CONTAINED
    assert judge(observed("tried x: refused EINVAL\nend\n")).outcome is Outcome.ESCAPED


def test_the_catalogue_is_whole() -> None:
    assert len(CASES) >= 60
    assert len(NAMED) == len(CASES)
    assert {case.family for case in CASES} == set(Family)
    for case in CASES:
        assert case.tries
        assert case.safe
        assert bool(case.programs) != bool(case.runs)


@pytest.mark.slow
def test_every_program_is_one() -> None:
    """A program that is none would end at once, and be judged by that."""
    prelude = (
        resources.files("tiltyard.sandbox.conformance") / "inside" / "prelude.py"
    ).read_text()
    for case in CASES:
        programs = (*case.programs, case.beside, case.witness)
        sources = [each.source for each in programs if each and each.language is Language.PYTHON]
        for source in (*sources, *case.runs):
            ast.parse(prelude + source)


def test_cases_are_chosen_by_name_and_family() -> None:
    assert chosen([]) == CASES
    assert [case.name for case in chosen(["fork-bomb"])] == ["fork-bomb"]
    assert {case.family for case in chosen(["memory", "disk"])} == {Family.MEMORY, Family.DISK}
    with pytest.raises(UsageError, match="nosuch"):
        chosen(["nosuch"])
