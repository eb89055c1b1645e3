"""How a verdict is told to a person: shorter than it is, and each thing once.

What is left out here is told in number, and all of it is in `--json`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from tiltyard.cli.plain import shown
from tiltyard.core.verdict import Check, CheckStatus, Reward, Verdict
from tiltyard.verify.split.fresh import FRESH

CHECKS_SHOWN_MAX = 200
SIGNS_SHOWN_MAX = 5
WORDS_SHOWN_MAX = 300
"""Characters of a reason or of a sign of tampering."""
COLUMNS = ("check", "status", "evidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Alike:
    """Checks that are told together."""

    first: Check
    count: int = 1


def check_rows(verdict: Verdict) -> Iterator[tuple[Text, Text, Text]]:
    """Rows for `COLUMNS`: those that failed first, because they are what one looks for.

    New inputs that went the same way are told once, and so is a reason that follows itself.
    """
    before = ""
    for each in _alike(verdict.checks)[:CHECKS_SHOWN_MAX]:
        check = each.first
        more = f" and {each.count - 1} more" if each.count > 1 else ""
        words = "as above" if check.evidence and check.evidence == before else check.evidence
        before = check.evidence
        style = "green" if check.status is CheckStatus.PASSED else "red"
        yield shown(f"{check.id}{more}"), Text(check.status, style=style), shown(words)


def checks_left_out(verdict: Verdict) -> int:
    """How many rows `check_rows` has no room for."""
    return max(0, len(_alike(verdict.checks)) - CHECKS_SHOWN_MAX)


def tamper_lines(verdict: Verdict) -> Iterator[Text]:
    """The signs of tampering, a line each, and how many there are beyond these."""
    for sign in verdict.tamper[:SIGNS_SHOWN_MAX]:
        yield shown(f"tamper: {brief(sign)}", "red")
    more = len(verdict.tamper) - SIGNS_SHOWN_MAX
    if more > 0:
        yield shown(f"tamper: {more} more signs; --json has all", "red")


def why_of(verdict: Verdict, reward: Reward) -> str:
    """Why a reward is what it is, where the signs of tampering have been told already."""
    if verdict.tamper and reward.why.startswith("tampering: "):
        count = len(verdict.tamper)
        return "tampering, as told above" if count == 1 else f"tampering, {count} signs of it above"
    return brief(reward.why)


def brief(words: str) -> str:
    """The beginning of words that may be long, and how long they are."""
    if len(words) <= WORDS_SHOWN_MAX:
        return words
    return f"{words[:WORDS_SHOWN_MAX]}... ({len(words)} characters; --json has all)"


def _alike(checks: Sequence[Check]) -> list[_Alike]:
    together: dict[object, _Alike] = {}
    for check in sorted(checks, key=lambda check: check.status is CheckStatus.PASSED):
        key = _way(check) if check.id.startswith(FRESH) else check.id
        known = together.get(key)
        count = 1 if known is None else known.count + 1
        together[key] = _Alike(first=check if known is None else known.first, count=count)
    return list(together.values())


def _way(check: Check) -> tuple[str, str]:
    """How an answer to a new input went: its status and, if any, the exception that was raised."""
    _, _, raised = check.evidence.partition(" raised ")
    return check.status, raised.partition(":")[0]
