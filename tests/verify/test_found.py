"""Whatever is found, a verdict stays within what a record may hold."""

from tiltyard.core.verdict import Check, CheckStatus, Component, Evidence
from tiltyard.verify.found import (
    COMPONENTS_MAX,
    EVIDENCE_CHARACTERS_MAX,
    EVIDENCE_MAX,
    SIGNS_MAX,
    WORDS_CHARACTERS_MAX,
    Found,
    bounded,
)

LONG = "x" * 1_000_000


def test_what_says_too_much_is_cut_and_keeps_every_status() -> None:
    checks = [Check(id=str(at), status=CheckStatus.CRASH, evidence=LONG) for at in range(1_000)]
    component = Component(name="style", raw=0.0, evidence=(Evidence(message=LONG),) * 1_000)
    found = bounded(
        Found(checks=tuple(checks), tamper=(LONG,) * 1_000, components=(component,) * 1_000)
    )
    assert [check.status for check in found.checks] == [CheckStatus.CRASH] * 1_000
    assert sum(len(check.evidence) for check in found.checks) == EVIDENCE_CHARACTERS_MAX
    assert len(found.tamper) == SIGNS_MAX + 1
    assert found.tamper[-1] == "and 900 more signs"
    assert len(found.components) == COMPONENTS_MAX
    words = [each.message for each in found.components[0].evidence]
    assert words == [LONG[:WORDS_CHARACTERS_MAX]] * EVIDENCE_MAX


def test_what_is_within_bounds_stays_as_it_is() -> None:
    check = Check(id="a", status=CheckStatus.WRONG_ANSWER, evidence="gave 1, expected 2")
    component = Component(name="size", raw=1.0, evidence=(Evidence(message="said"),))
    found = Found(checks=(check,), tamper=("a sign",), components=(component,))
    assert bounded(found) == found


def test_nothing_to_judge_has_not_passed() -> None:
    passed = Check(id="a", status=CheckStatus.PASSED)
    assert Found(checks=(passed,)).all_passed
    assert not Found().all_passed
    assert not Found(checks=(passed,), problem="a link").all_passed
