"""The reward, as a pure function of verdicts and weights: no clock, no chance, nothing is run.

What is paid is a weighted mean of shares from 0 to 1: that of the tests, and that of each component
that the weights name. Each is rounded down, never up, so nothing is paid for what was not reached.
Whoever is compared is compared by the same measures: one that is missing for somebody in a group,
by no doing of theirs, counts for nobody in it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import assert_never

from tiltyard.core.ids import GroupId, TaskId
from tiltyard.core.verdict import CheckStatus, Component, Gap, Outcome, Reward, Verdict
from tiltyard.core.weights import DEFAULT, ComponentWeight, Unresolved, Weights

TESTS = "tests"
SCRIPT = "script"
"""The component that stands for the tests' share where a script of the task decides. Its own weight
counts nothing; its bounds say which of the script's numbers are 1 and 0."""
_UNRESOLVED = "unresolved in this group"
_ROUNDING = 1e-9
"""0.15 / 0.05 is a little less than 3, and must not be rounded down to 2."""


def reward_of(verdict: Verdict, weights: Weights = DEFAULT) -> Reward:
    """The reward of one verdict by itself.

    By default 1 for a right answer, 0 for a wrong or cheating one, and none for whatever was not
    its fault. Partial credit is paid only where the weights say so: a wrong program passes a third
    of ordinary tests by chance.
    """
    return rewards_of_group((verdict,), weights)[0]


def rewards_of_group(verdicts: Sequence[Verdict], weights: Weights = DEFAULT) -> tuple[Reward, ...]:
    """The rewards of verdicts that are compared with each other, in their order.

    A component that a fault of ours left unmeasured for one of them is dropped for all, and the
    other weights grow in proportion; so is one that says nothing (`Gap.UNRESOLVED`), unless its
    weight says that this is worth 0, and one that was not measured at all.
    """
    dropped = _dropped(verdicts, weights)
    return tuple(
        replace(_reward(verdict, weights, dropped), gates=_gates(verdict, weights))
        for verdict in verdicts
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The verdict of one rollout of a run, with what decides whom it is compared with."""

    group: GroupId
    task: TaskId
    weights: Weights
    verdict: Verdict


def rewards_of_run(judged: Sequence[Judged]) -> tuple[Reward, ...]:
    """The rewards that a learner is given, in the order of `judged`.

    Compared with each other are the rollouts of one group, task and weights, by
    `rewards_of_group`; so what is given here are whole groups.
    """
    groups: dict[tuple[GroupId, TaskId, str], list[int]] = {}
    for place, each in enumerate(judged):
        groups.setdefault((each.group, each.task, each.weights.digest), []).append(place)
    found: dict[int, Reward] = {}
    for places in groups.values():
        weights = judged[places[0]].weights
        rewards = rewards_of_group([judged[place].verdict for place in places], weights)
        found.update(zip(places, rewards, strict=True))
    return tuple(found[place] for place in range(len(judged)))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tests:
    """What the tests are worth."""

    share: float | None
    """None: the script's number is missing, which is no doing of the submission's."""
    full: bool
    """Everything was correct, so the gate is open."""
    words: str


def _reward(verdict: Verdict, weights: Weights, dropped: Mapping[str, str]) -> Reward:
    match verdict.outcome:
        case Outcome.INFRA_FAULT | Outcome.GRADER_FAULT | Outcome.CANCELLED:
            return Reward(value=None, why=verdict.detail or verdict.outcome)
        case Outcome.AGENT_FAULT:
            return Reward(value=0.0, why=verdict.detail or verdict.outcome)
        case Outcome.GRADED:
            pass
        case _:
            assert_never(verdict.outcome)
    if verdict.tamper:
        return Reward(value=0.0, why=f"tampering: {'; '.join(verdict.tamper)}")
    tests = _tests(verdict, weights)
    if tests.share is None:
        return Reward(value=None, why=tests.words)
    return _weighed(verdict, weights, dropped, tests, tests.share)


def _gates(verdict: Verdict, weights: Weights) -> Mapping[str, bool]:
    gates = {"graded": verdict.outcome is Outcome.GRADED, "untampered": not verdict.tamper}
    if weights.gate:
        gates["correct"] = gates["graded"] and _tests(verdict, weights).full
    return MappingProxyType(gates)


def _weighed(
    verdict: Verdict, weights: Weights, dropped: Mapping[str, str], tests: _Tests, share: float
) -> Reward:
    counted = {
        name: each
        for name, each in weights.components.items()
        if each.weight > 0 and name not in dropped and name != SCRIPT
    }
    total = math.fsum((weights.tests, *(each.weight for each in counted.values())))
    missing = [f"{name} dropped ({why})" for name, why in dropped.items()]
    if total <= 0:
        # A submission may bring about that it cannot be resolved, and must not go unscored by that.
        value = 0.0 if _UNRESOLVED in dropped.values() else None
        return Reward(value=value, why=", ".join(("nothing that counts was measured", *missing)))
    earned = {TESTS: weights.tests * share} if weights.tests > 0 else {}
    words = [tests.words]
    if counted and earned:
        words.append(f"{TESTS} {earned[TESTS] / total:.3g} of {weights.tests / total:.3g}")
    for name, each in counted.items():
        if weights.gate and not tests.full:
            earned[name] = 0.0
            words.append(f"{name} 0 (only a correct answer is paid for it)")
            continue
        earned[name] = each.weight * _worth(_component(verdict, name), each)
        words.append(f"{name} {earned[name] / total:.3g} of {each.weight / total:.3g}")
    value = _down(min(1.0, math.fsum(earned.values()) / total), weights.quantum)
    parts = MappingProxyType({name: each / total for name, each in earned.items()})
    return Reward(value=value, why=", ".join((*words, *missing)), parts=parts)


def _tests(verdict: Verdict, weights: Weights) -> _Tests:
    script = _component(verdict, SCRIPT)
    if script is not None:
        share = _normalised(script, weights.components.get(SCRIPT, ComponentWeight(weight=0)))
        if script.gap is Gap.NOT_POSSIBLE:
            return _Tests(share=0.0, full=False, words="the script had nothing to judge")
        if script.gap is Gap.INFRA or share is None:
            words = "there is no number of the script's from 0 to 1, or within bounds"
            return _Tests(share=None, full=False, words=words)
        words = f"the script says {share:.3g}"
        return _Tests(share=_above(share, verdict.baseline), full=share >= 1, words=words)
    count = len(verdict.checks)
    if verdict.all_passed:
        return _Tests(share=1.0, full=True, words=f"all {count} checks passed")
    words = f"{verdict.passed} of {count} checks passed"
    if not weights.partial:
        return _Tests(share=0.0, full=False, words=words)
    if verdict.baseline:
        words += f" (the best constant answer earns {verdict.baseline:.3g})"
    return _Tests(share=_above(_share(verdict), verdict.baseline), full=False, words=words)


def _share(verdict: Verdict) -> float:
    """The weighted share of checks that passed; a weight below 0 counts as 0."""
    of = [(max(0.0, each.weight), each.status) for each in verdict.checks]
    total = math.fsum(weight for weight, _ in of)
    passed = math.fsum(weight for weight, status in of if status is CheckStatus.PASSED)
    return passed / total if 0 < total < math.inf else 0.0


def _above(share: float, baseline: float) -> float:
    """What is left of a share when what the best constant earns is worth nothing."""
    if share >= 1:
        return 1.0
    return max(0.0, (share - baseline) / (1 - baseline)) if baseline < 1 else 0.0


def _dropped(verdicts: Sequence[Verdict], weights: Weights) -> dict[str, str]:
    """The components that count for nobody here, each with why."""
    judged = [each for each in verdicts if each.outcome is Outcome.GRADED and not each.tamper]
    # What is not paid cannot be missing: a wrong answer may well have nothing to measure.
    payable = [each for each in judged if not weights.gate or _tests(each, weights).full]
    found: dict[str, str] = {}
    for name, each in weights.components.items():
        if each.weight <= 0 or name == SCRIPT:
            continue
        seen = [_component(verdict, name) for verdict in judged]
        gaps = [_gap(_component(verdict, name), each) for verdict in payable]
        if any(one is not None and one.gap is Gap.INFRA for one in seen):
            found[name] = "a fault of ours in this group"
        elif Gap.INFRA in gaps:
            found[name] = f"not measured in this group{_meant(name, judged)}"
        elif Gap.UNRESOLVED in gaps and each.unresolved is Unresolved.DROP:
            found[name] = _UNRESOLVED
    return found


def _meant(name: str, judged: Sequence[Verdict]) -> str:
    """Of what was measured, what a name may have been meant for."""
    measured = sorted({each.name for verdict in judged for each in verdict.components})
    near = [] if name in measured else get_close_matches(name, measured, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _gap(component: Component | None, weight: ComponentWeight) -> Gap | None:
    """Why a component cannot be paid, or None; one that was never measured counts as ours."""
    if component is None:
        return Gap.INFRA
    if component.gap is not None:
        return component.gap
    return None if _normalised(component, weight) is not None else Gap.UNRESOLVED


def _worth(component: Component | None, weight: ComponentWeight) -> float:
    """What a component is worth, from 0 to 1; 0 where there is nothing to pay for."""
    if component is None or component.gap is not None:
        return 0.0
    return _down(_normalised(component, weight) or 0.0, weight.quantum)


def _normalised(component: Component, weight: ComponentWeight) -> float | None:
    """Its share from 0 to 1 by these weights; None when it cannot be told."""
    if weight.bounds is None:
        return _finite(component.normalised)
    raw, bounds = component.raw, weight.bounds
    if raw is None or math.isnan(raw):
        return None
    best, worst = bounds.best, bounds.worst
    if bounds.relative:
        reference = component.reference
        if reference is None or not math.isfinite(reference):
            return None
        if reference == 0:
            # No multiple of it says anything; as good as the reference is what there is to be.
            better = raw <= 0 if best < worst else raw >= 0
            return 1.0 if better else 0.0
        best, worst = best * reference, worst * reference
    if best == worst or not math.isfinite(best - worst):
        return None
    if math.isinf(raw):
        return float((raw > 0) == (best > worst))
    return min(1.0, max(0.0, (raw - worst) / (best - worst)))


def _finite(value: float | None) -> float | None:
    """A share within 0 and 1; None for none and for what is no number."""
    if value is None or math.isnan(value):
        return None
    return min(1.0, max(0.0, value))


def _down(value: float, quantum: float) -> float:
    """Rounded down to a multiple of one nth, exactly k divided by n."""
    if not quantum:
        return value
    count = round(1 / quantum)
    return min(count, math.floor(value * count + _ROUNDING)) / count


def _component(verdict: Verdict, name: str) -> Component | None:
    return next((each for each in verdict.components if each.name == name), None)
