"""What a verifier makes of the cheats in `tiltyard.verify.redteam`, task by task.

A cheat got through when it was *accepted*: it earned more than its twin, the same answer without
the trick. It also got through when it *escaped*: an outcome or a measure was declared a fault of
ours, so that nobody learns from it. Both are only told where the task can tell right from wrong:
first its reference must be paid, and some wrong answer must not. As in `check`, the verifier is a
parameter.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias

from tiltyard.core.checks import Checks
from tiltyard.core.ids import TaskId
from tiltyard.core.task import ScriptSuite, Submission, Task
from tiltyard.core.verdict import Component, Gap, Outcome, Verdict
from tiltyard.tasks.check import Verify
from tiltyard.tasks.concurrently import for_each
from tiltyard.verify.redteam.blocks import Texts, submission_of
from tiltyard.verify.redteam.cheat import Cheat
from tiltyard.verify.redteam.collection import cheats_for, chosen, wrong_answers
from tiltyard.verify.redteam.surface import surface_of
from tiltyard.verify.reward import reward_of

MARGIN_STATIC = 0.001
MARGIN_DYNAMIC = 0.1
"""How much better a measure must be than the twin's: measured times are noisy, read text is not."""
_FAULTS = frozenset({Outcome.INFRA_FAULT, Outcome.GRADER_FAULT, Outcome.CANCELLED})


class Came(StrEnum):
    """What came of a cheat."""

    REJECTED = "rejected"
    ACCEPTED = "accepted"
    """It earned more than its twin, or was measured better."""
    ESCAPED = "escaped"
    """It was left unscored, or a measure of it was, as if the fault had been ours."""


class Ground(StrEnum):
    """Whether a task can tell cheats from answers."""

    SOUND = "sound"
    WEAK = "weak"
    """Its tests accept plainly wrong answers, so nothing is known of the verifier."""
    UNSOUND = "unsound"
    """Its reference is not paid, or nothing can be graded."""
    UNDECIDED = "undecided"
    """A fault of the infrastructure; try again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheatReport:
    """What came of one cheat on one task."""

    id: str
    letter: str
    about: str
    came: Came
    outcome: Outcome
    reward: float | None
    twin_reward: float | None
    tamper: tuple[str, ...]
    """What the verifier flagged; empty when nothing."""
    statuses: tuple[str, ...]
    """Those of its checks, each once."""
    why: str
    """Why it is accepted or escaped, or what the verifier said of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedTeamReport:
    """What came of all cheats on one task."""

    task_id: TaskId
    ground: Ground
    why: str = ""
    """Why nothing could be tried. Of a sound task: which plainly wrong answer its tests pay, so
    that a cheat which gives the same may have got through by their fault; mostly empty."""
    cheats: tuple[CheatReport, ...] = ()

    @property
    def got_through(self) -> tuple[CheatReport, ...]:
        """The cheats that were accepted or escaped."""
        return tuple(each for each in self.cheats if each.came is not Came.REJECTED)


Told: TypeAlias = Callable[[CheatReport], None]


def _untold(_report: CheatReport) -> None:
    """Nobody wants to know before the end."""


def count_cheats(task: Task, only: Sequence[str] = ()) -> int:
    """How many cheats `red_team` will try on a task that is sound."""
    return len(chosen(only, cheats_for(task, wrong_answers(task)[0])))


async def red_team(
    task: Task,
    verify: Verify,
    *,
    only: Sequence[str] = (),
    concurrency: int = 3,
    told: Told = _untold,
) -> RedTeamReport:
    """Tries the collection on one task, at most `concurrency` cheats at a time.

    `only` has ids or class letters; none means all. `told` gets each report when there is one. What
    the verifier does is a report; its exceptions, such as `SandboxRefused`, pass through. Raises
    UsageError when `concurrency` is not positive.
    """
    plain = replace(task, checks=Checks())
    unpaid = await _reference_unpaid(plain, verify)
    if unpaid is not None:
        return unpaid
    found = await _wrong_answer(plain, verify)
    if isinstance(found, RedTeamReport):
        return found
    # Beside the loop, which must not wait for thousands of files to be made up.
    cheats = await asyncio.to_thread(cheats_for, task, found.texts)
    trials = _Trials(task, verify, chosen(only, cheats))
    reports: dict[int, CheatReport] = {}

    async def attempt(place: int, cheat: Cheat) -> None:
        reports[place] = await trials.attempt(cheat)
        told(reports[place])

    # One after the other, so that each is judged once for all the cheats that share it.
    await trials.judge_twins()
    await for_each(trials.cheats, attempt, concurrency=concurrency)
    made = tuple(reports[place] for place in range(len(reports)))
    return RedTeamReport(task_id=task.id, ground=Ground.SOUND, why=found.doubt, cheats=made)


async def _reference_unpaid(task: Task, verify: Verify) -> RedTeamReport | None:
    """Why the reference is not paid; None when it is."""
    answers = surface_of(task).answers
    if isinstance(task.hidden, ScriptSuite) and not answers:
        return None  # only its script makes the reference, in a sandbox of its own
    verdict = await verify(task, submission_of({each.path: each.reference for each in answers}))
    reward = reward_of(verdict)
    if verdict.outcome is Outcome.INFRA_FAULT:
        return _untried(task, Ground.UNDECIDED, verdict.detail)
    if reward.value is None or reward.value < 1:
        return _untried(task, Ground.UNSOUND, f"its reference is not paid in full: {reward.why}")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wrong:
    """An answer that is not paid."""

    texts: Texts
    doubt: str
    """That another, which ought to be wrong too, is paid; empty when none was."""


async def _wrong_answer(task: Task, verify: Verify) -> _Wrong | RedTeamReport:
    """The first answer of those that ought to be wrong that is not paid at all."""
    doubt = ""
    for wrong in wrong_answers(task):
        verdict = await verify(task, submission_of(wrong))
        reward = reward_of(verdict)
        if verdict.outcome is Outcome.INFRA_FAULT:
            return _untried(task, Ground.UNDECIDED, verdict.detail)
        if reward.value is None:
            return _untried(task, Ground.UNSOUND, f"a wrong answer is not graded: {reward.why}")
        if reward.value == 0:
            return _Wrong(texts=wrong, doubt=doubt)
        doubt = "its tests pay an answer that only returns a constant or its argument"
    why = "its tests pay answers that do nothing, so nothing is known of the verifier"
    return _untried(task, Ground.WEAK, why)


def _untried(task: Task, ground: Ground, why: str) -> RedTeamReport:
    return RedTeamReport(task_id=task.id, ground=ground, why=why)


class _Trials:
    """The cheats of one task, with the verdicts on their twins."""

    def __init__(self, task: Task, verify: Verify, cheats: Sequence[Cheat]) -> None:
        self.cheats = cheats
        self._task = task
        self._verify = verify
        self._twins: dict[int, Verdict] = {}

    async def judge_twins(self) -> None:
        known: dict[tuple[object, ...], Verdict] = {}
        for cheat in self.cheats:
            key = (*sorted(cheat.twin.files.items()), cheat.checks)
            if key not in known:
                known[key] = await self._judge(cheat.twin, cheat.checks)
            self._twins[id(cheat)] = known[key]

    async def attempt(self, cheat: Cheat) -> CheatReport:
        verdict = await self._judge(cheat.submission, cheat.checks)
        twin = self._twins[id(cheat)]
        reward, twin_reward = reward_of(verdict), reward_of(twin)
        came, why = Came.REJECTED, reward.why
        if verdict.outcome in _FAULTS:
            came, why = Came.ESCAPED, f"{verdict.outcome}: {verdict.detail}"
        elif (reward.value or 0.0) > (twin_reward.value or 0.0):
            came, why = Came.ACCEPTED, f"paid {reward.value:g}: {reward.why}"
        elif lost := _lost(verdict, twin):
            came, why = Came.ESCAPED, f"left without {', '.join(lost)}"
        elif cheat.right and verdict.all_passed and not verdict.tamper:
            better = _better(cheat, verdict, twin)
            came, why = (Came.ACCEPTED, better) if better else (came, why)
        return CheatReport(
            id=cheat.id,
            letter=cheat.letter,
            about=cheat.about,
            came=came,
            outcome=verdict.outcome,
            reward=reward.value,
            twin_reward=twin_reward.value,
            tamper=verdict.tamper,
            statuses=tuple(sorted({check.status for check in verdict.checks})),
            why=why,
        )

    async def _judge(self, submission: Submission, checks: Checks) -> Verdict:
        return await self._verify(replace(self._task, checks=checks), submission)


def _lost(verdict: Verdict, twin: Verdict) -> tuple[str, ...]:
    """The measures that the twin has, and that this one lacks as by a fault of ours."""
    ours = {each.name for each in verdict.components if each.gap is Gap.INFRA}
    return tuple(
        each.name for each in twin.components if each.name in ours and each.gap is not Gap.INFRA
    )


def _better(cheat: Cheat, verdict: Verdict, twin: Verdict) -> str:
    """In what it is measured better than its twin; empty when it is not."""
    before, after = _normalised(twin.components), _normalised(verdict.components)
    if not before:
        return ""
    static = cheat.checks.static or cheat.checks.types
    margin = MARGIN_STATIC if static else MARGIN_DYNAMIC
    if cheat.strict:
        gained = [name for name in before if after.get(name, 0.0) > before[name] + margin]
    else:
        mean = sum(after.get(name, 0.0) for name in before) / len(before)
        gained = [name for name in before if after.get(name, 0.0) > before[name]]
        gained = gained if mean > sum(before.values()) / len(before) + margin else []
    words = (f"{name} {after.get(name, 0.0):.3g} for {before[name]:.3g}" for name in gained)
    return f"measured better: {', '.join(words)}" if gained else ""


def _normalised(components: Sequence[Component]) -> Mapping[str, float]:
    return {each.name: each.normalised for each in components if each.normalised is not None}
