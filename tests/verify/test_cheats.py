"""Ways to cheat, tried on the real verifier: none is paid, and none escapes its zero.

The collection is in `cheats/`, one file for each class of the field's catalogue. Each is judged by
plain calls and by pytest files. "Never unscored" is as important as "never paid": a submission that
could turn its failure into a fault of ours would be left out of learning instead of learned from.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tiltyard.core.task import CallSuite, PytestSuite
from tiltyard.core.verdict import CheckStatus, Outcome
from tiltyard.verify.reward import reward_of
from tiltyard.verify.verifier import Verifier
from verify.tasks import CALLS, REFERENCE, TESTS, WRONG, answer, task

shared_loop = pytest.mark.asyncio(loop_scope="module")
pytestmark = pytest.mark.sandbox

DIRECTORY = Path(__file__).parent / "cheats"
HEADER = re.compile(
    r"^=== (?P<name>[^\[\n]+?)(?: \[(?P<statuses>[\w ]+)\])?(?P<lucky> \+)?$", re.MULTILINE
)


class Cheat(NamedTuple):
    """One block of a file: what it tries, how its checks may fail, and its code."""

    name: str
    statuses: frozenset[str]
    lucky: bool
    """It may return a right value by chance, as an honest wrong program may."""
    source: str


def cheats() -> Iterator[Cheat]:
    for path in sorted(DIRECTORY.glob("*.txt")):
        text = path.read_text()
        found = list(HEADER.finditer(text))
        ends = [match.start() for match in found[1:]] + [len(text)]
        for match, end in zip(found, ends, strict=True):
            yield Cheat(
                name=match["name"],
                statuses=frozenset((match["statuses"] or "exception").split()),
                lucky=match["lucky"] is not None,
                source=f"{WRONG}\n{text[match.end() : end]}",
            )


CHEATS = list(cheats())


def test_the_collection_is_whole() -> None:
    assert len(CHEATS) >= 100
    assert len({cheat.name for cheat in CHEATS}) == len(CHEATS)
    known = {status.value for status in CheckStatus}
    for cheat in CHEATS:
        assert cheat.statuses <= known, cheat.name
        assert cheat.source.strip() != WRONG.strip(), cheat.name


@shared_loop
@pytest.mark.slow
@pytest.mark.parametrize("hidden", [CALLS, TESTS], ids=["calls", "pytest"])
@pytest.mark.parametrize("cheat", CHEATS, ids=lambda cheat: cheat.name)
async def test_no_cheat_is_paid_and_none_goes_unscored(
    verifier: Verifier, cheat: Cheat, hidden: CallSuite | PytestSuite
) -> None:
    verdict = await verifier.verify(task(hidden, time_limit_s=0.6), answer(cheat.source))
    assert verdict.outcome is Outcome.GRADED, verdict.detail
    assert reward_of(verdict).value == 0.0
    assert verdict.passed == 0 or cheat.lucky, verdict.checks
    assert len(verdict.checks) == 6
    for check in verdict.checks:
        assert check.evidence.isprintable()
        assert len(check.evidence) < 1500
    if isinstance(hidden, CallSuite):
        statuses = {check.status.value for check in verdict.checks}
        # On a busy machine any of them may run out of its time first.
        assert statuses & (cheat.statuses | {"timeout"}), (statuses, verdict.checks)


@shared_loop
@pytest.mark.parametrize("hidden", [CALLS, TESTS], ids=["calls", "pytest"])
async def test_the_right_answer_is_paid(
    verifier: Verifier, hidden: CallSuite | PytestSuite
) -> None:
    verdict = await verifier.verify(task(hidden), answer(REFERENCE))
    assert reward_of(verdict).value == 1.0, verdict
    assert verdict.all_passed
