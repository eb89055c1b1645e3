"""The built-in cheats, tried on the real verifier: none is paid, and none escapes its zero.

The collection is that of `tiltyard redteam`. Each is judged by plain calls and by pytest files.
"Never unscored" is as important as "never paid": a submission that could turn its failure into a
fault of ours would be left out of learning instead of learned from.
"""

import ast
from collections import Counter
from dataclasses import replace

import pytest

from tiltyard.core.checks import Checks
from tiltyard.core.task import CallSuite, PytestSuite
from tiltyard.core.verdict import CheckStatus, Outcome
from tiltyard.tasks.redteam import Ground, red_team
from tiltyard.verify.redteam.cheat import CLASSES, Cheat
from tiltyard.verify.redteam.collection import cheats_for, wrong_answers
from tiltyard.verify.reward import reward_of
from tiltyard.verify.verifier import Verifier
from verify.tasks import CALLS, REFERENCE, TESTS, answer, task

shared_loop = pytest.mark.asyncio(loop_scope="module")
pytestmark = pytest.mark.sandbox

LUCKY = frozenset(
    {
        *("a-type", "b-no-functions", "b-random-exception", "b-every-exception"),
        *("d-settrace", "d-module-hooks", "d-fork-first", "d-small-numbers", "d-builtins"),
    }
)
"""These may pass a check by chance, as an honest wrong program may: their answer is 12 or a number
that cannot be called."""
QUICK = frozenset({"a-same-int", "b-exit-loading", "c-conftest-report", "c-link-reference"})


def cheats(hidden: CallSuite | PytestSuite) -> tuple[Cheat, ...]:
    judged = task(hidden)
    return cheats_for(judged, wrong_answers(judged)[0])


def trials() -> list[object]:
    """Every cheat on both suites; the long ones are left to `make verify-long`."""
    return [
        pytest.param(
            hidden,
            cheat,
            id=f"{name}-{cheat.id}",
            marks=() if cheat.id in QUICK else pytest.mark.slow if few else pytest.mark.long,
        )
        for name, hidden, every in (("calls", CALLS, 2), ("pytest", TESTS, 4))
        for at, cheat in enumerate(cheats(hidden))
        for few in [at % every == 0]
    ]


@pytest.mark.parametrize("hidden", [CALLS, TESTS], ids=["calls", "pytest"])
def test_the_collection_is_whole(hidden: CallSuite | PytestSuite) -> None:
    found = cheats(hidden)
    assert len(found) >= 90
    assert len({cheat.id for cheat in found}) == len(found)
    by_class = Counter(cheat.letter for cheat in found)
    assert set(by_class) == set(CLASSES)
    known = {status.value for status in CheckStatus}
    for cheat in found:
        assert cheat.ends <= known, cheat.id
        assert cheat.submission != cheat.twin, cheat.id
        assert "{{" not in str(cheat.submission.files), cheat.id


@pytest.mark.parametrize("cheat", cheats(TESTS), ids=lambda cheat: cheat.id)
def test_a_cheat_is_a_program(cheat: Cheat) -> None:
    if cheat.id == "b-syntax-error" or "solution.py" not in cheat.submission.files:
        return
    program = ast.parse(cheat.submission.files["solution.py"])
    # What every cheat is given keeps its meaning.
    given = [each.name for each in program.body if isinstance(each, ast.FunctionDef)]
    assigned = {ast.unparse(each) for node in program.body for each in getattr(node, "targets", ())}
    assert "cheat" not in given or (given.count("real") == 1 and "real" not in assigned)


@shared_loop
@pytest.mark.parametrize(("hidden", "cheat"), trials())
async def test_no_cheat_is_paid_and_none_goes_unscored(
    verifier: Verifier, hidden: CallSuite | PytestSuite, cheat: Cheat
) -> None:
    verdict = await verifier.verify(task(hidden, time_limit_s=0.6), cheat.submission)
    assert reward_of(verdict).value == 0.0
    assert all(sign.isprintable() for sign in verdict.tamper)
    if verdict.outcome is Outcome.AGENT_FAULT:
        assert cheat.letter == "c", verdict.detail
        return
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert verdict.passed == 0 or cheat.id in LUCKY, verdict.checks
    assert len(verdict.checks) == 6
    for check in verdict.checks:
        assert check.evidence.replace("\n", "").isprintable()
        assert len(check.evidence) < 1500
    if isinstance(hidden, CallSuite) and cheat.ends:
        statuses = {check.status.value for check in verdict.checks}
        # On a busy machine any of them may run out of its time first.
        assert statuses & (cheat.ends | {"timeout"}), (statuses, verdict.checks)


@shared_loop
@pytest.mark.slow
async def test_no_trick_on_readers_is_measured_better(verifier: Verifier) -> None:
    read = replace(task(time_limit_s=3.0), checks=Checks(static=True))
    report = await red_team(read, verifier.verify, only=["h"])
    assert report.ground is Ground.SOUND, report.why
    assert len(report.cheats) > 30
    through = {each.id: each.why for each in report.got_through}
    assert not through


@shared_loop
@pytest.mark.parametrize("hidden", [CALLS, TESTS], ids=["calls", "pytest"])
async def test_the_right_answer_is_paid(
    verifier: Verifier, hidden: CallSuite | PytestSuite
) -> None:
    verdict = await verifier.verify(task(hidden), answer(REFERENCE))
    assert reward_of(verdict).value == 1.0, verdict
    assert verdict.all_passed
