"""What the red team tells of verifiers whose weaknesses are known."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tiltyard.core.checks import Checks
from tiltyard.core.errors import UsageError
from tiltyard.core.ids import TaskId
from tiltyard.core.task import (
    CallCase,
    CallSuite,
    ProgramCase,
    ProgramSuite,
    RepositorySuite,
    Split,
    Submission,
    Task,
)
from tiltyard.core.verdict import Check, CheckStatus, Component, Gap, Outcome, Verdict
from tiltyard.tasks.check import Verify
from tiltyard.tasks.redteam import Came, Ground, count_cheats, red_team
from tiltyard.verify.redteam.collection import cheats_for, refuse_unknown, wrong_answers

REFERENCE = "import functools\n\n\ndef twice(x):\n    return 2 * x\n"
TASK = Task(
    id=TaskId("twice"),
    family="sums",
    split=Split.TRAIN,
    revision="1",
    instruction="Return twice x.",
    starter="def twice(x):\n    return x\n",
    reference=REFERENCE,
    visible=CallSuite(cases=(CallCase(id="v", target="twice", args=(2,), expected=4),)),
    hidden=CallSuite(cases=(CallCase(id="h", target="twice", args=(3,), expected=6),)),
)


def source_of(submission: Submission) -> str:
    return submission.files.get("solution.py", b"").decode("utf-8", "replace")


def graded(*, passed: bool, components: tuple[Component, ...] = ()) -> Verdict:
    status = CheckStatus.PASSED if passed else CheckStatus.WRONG_ANSWER
    checks = (Check(id="h", status=status),)
    return Verdict(outcome=Outcome.GRADED, checks=checks, components=components)


def verifier(*, believes: str = "", breaks_at: str = "") -> Verify:
    """A verifier that pays the reference, and is fooled by sources with some words in them."""

    async def verify(_task: Task, submission: Submission) -> Verdict:
        source = source_of(submission)
        if breaks_at and breaks_at in source:
            return Verdict(outcome=Outcome.INFRA_FAULT, detail="lost")
        return graded(passed=source == REFERENCE or bool(believes and believes in source))

    return verify


async def test_a_good_verifier_lets_nothing_through() -> None:
    report = await red_team(TASK, verifier())

    assert report.ground is Ground.SOUND
    assert len(report.cheats) == count_cheats(TASK) >= 90
    assert report.got_through == ()


async def test_what_is_paid_and_what_goes_unscored_is_told() -> None:
    told: list[str] = []
    report = await red_team(
        TASK,
        verifier(believes="class Same(int)", breaks_at="os._exit(137)"),
        told=lambda each: told.append(each.id),
    )

    assert {each.id: each.came for each in report.got_through} == {
        "a-same-int": Came.ACCEPTED,
        "b-exit-out-of-memory": Came.ESCAPED,
    }
    assert sorted(told) == sorted(each.id for each in report.cheats)


async def test_only_what_is_named_is_tried() -> None:
    report = await red_team(TASK, verifier(), only=["F", "a-nan"])

    assert {each.letter for each in report.cheats} == {"a", "f"}
    assert [each.id for each in report.cheats if each.letter == "a"] == ["a-nan"]
    with pytest.raises(UsageError, match="a-nun"):
        refuse_unknown(["a-nun"], [each.id for each in report.cheats])


async def test_a_task_that_pays_anything_is_called_weak_and_no_verifier_is_blamed() -> None:
    async def pays(_task: Task, _submission: Submission) -> Verdict:
        return graded(passed=True)

    report = await red_team(TASK, pays)

    assert (report.ground, report.cheats) == (Ground.WEAK, ())


async def test_a_wrong_answer_that_is_paid_by_chance_is_passed_over() -> None:
    """The stub that returns None is right here, but the starter is not."""

    async def verify(_task: Task, submission: Submission) -> Verdict:
        source = source_of(submission)
        return graded(passed=source == REFERENCE or source.endswith("return None"))

    report = await red_team(TASK, verify, only=["f"])

    assert report.ground is Ground.SOUND
    assert "returns a constant" in report.why
    assert report.got_through == ()


@pytest.mark.parametrize(
    ("verdict", "ground"),
    [
        (graded(passed=False), Ground.UNSOUND),
        (Verdict(outcome=Outcome.GRADER_FAULT, detail="no tests"), Ground.UNSOUND),
        (Verdict(outcome=Outcome.INFRA_FAULT, detail="lost"), Ground.UNDECIDED),
    ],
)
async def test_a_reference_that_is_not_paid_ends_it(verdict: Verdict, ground: Ground) -> None:
    async def verify(_task: Task, _submission: Submission) -> Verdict:
        return verdict

    report = await red_team(TASK, verify)

    assert (report.ground, report.cheats) == (ground, ())
    assert report.why


def measured(style: Callable[[str], Component]) -> Verify:
    """A verifier that takes everything with the reference in it for right, and measures style."""

    async def verify(task: Task, submission: Submission) -> Verdict:
        source = source_of(submission)
        components = (style(source),) if task.checks.static else ()
        return graded(passed="return 2 * x" in source, components=components)

    return verify


async def test_a_linter_that_obeys_comments_is_found_out() -> None:
    def obeys(source: str) -> Component:
        smells = sum("noqa" not in line for line in source.splitlines() if "except:" in line)
        return Component(name="style", raw=smells, normalised=1.0 - 0.5 * smells)

    static = replace(TASK, checks=Checks(static=True))
    report = await red_team(static, measured(obeys), only=["h"])

    through = {each.id: each.why for each in report.got_through}
    assert through["h-noqa"] == "measured better: style 1 for 0.5"
    assert "h-nosec" not in through
    assert "h-noqa" not in {each.id for each in cheats_for(TASK, wrong_answers(TASK)[0])}


async def test_a_measure_that_is_lost_by_what_was_read_is_an_escape() -> None:
    def chokes(source: str) -> Component:
        if "deep = ((" in source:
            return Component(name="style", raw=None, gap=Gap.INFRA)
        return Component(name="style", raw=0.0, normalised=1.0)

    static = replace(TASK, checks=Checks(static=True))
    report = await red_team(static, measured(chokes), only=["h"])

    assert {each.id: each.came for each in report.got_through} == {
        "h-deep-expression": Came.ESCAPED
    }


def test_a_repository_is_attacked_where_its_reference_changes_it() -> None:
    suite = RepositorySuite(
        base={"pkg/core.py": b"def f(x):\n    return 0\n", "pkg/other.py": b"KEPT = 1\n"},
        tests={"test_core.py": b"", "tools.py": b""},
        reference={"pkg/core.py": b"class C:\n    async def f(self, x):\n        return x\n"},
        sources=("pkg/**",),
    )
    task = replace(TASK, hidden=suite)
    wrong = wrong_answers(task)
    found = {each.id: each for each in cheats_for(task, wrong[0])}

    assert "def f(x):\n    return 0\n" in [each["pkg/core.py"] for each in wrong]
    assert len(found) >= 90
    assert all("overlay" in each.aims for each in found.values())
    source = found["a-same-int"].submission.files["pkg/core.py"].decode()
    assert "async def _C_f(self, *args, **kwargs):" in source
    assert "pkg/conftest.py" in found["c-conftest-report"].submission.files
    assert "tests/tools.py" in found["c-same-helpers"].submission.files
    assert found["c-link-passwd"].submission.links == {"pkg/core.py": "/etc/passwd"}


@pytest.mark.parametrize(
    ("source", "at_least"), [("solution.py", 70), ("main.c", 50), ("main.rs", 40)]
)
def test_a_program_is_attacked_by_programs(source: str, at_least: int) -> None:
    suite = ProgramSuite(
        source=source, run=("./main",), cases=(ProgramCase(id="1", expected=b"1\n"),)
    )
    task = replace(TASK, hidden=suite, reference="print(1)\n", starter="")
    found = cheats_for(task, wrong_answers(task)[0])

    assert len({each.id for each in found}) == len(found) >= at_least
    assert all("cheat(" not in str(each.submission.files.get(source)) for each in found)
