"""The reward's properties, whatever verdicts and weights there are, and examples in figures."""

import math
import random
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given, strategies as st

from sample_verdicts import (
    NAMES,
    SHARES,
    component,
    some_components,
    some_verdicts,
    some_weights,
)
from tiltyard.core.verdict import Check, CheckStatus, Component, Gap, Outcome, Reward, Verdict
from tiltyard.core.weights import DEFAULT, Bounds, ComponentWeight, Unresolved, Weights
from tiltyard.verify.reward import reward_of, rewards_of_group

FAULTS = (Outcome.INFRA_FAULT, Outcome.GRADER_FAULT, Outcome.CANCELLED)


@given(some_verdicts(st.sampled_from(Outcome)), some_weights())
def test_a_reward_is_a_share_or_none(verdict: Verdict, weights: Weights) -> None:
    reward = reward_of(verdict, weights)
    assert reward.why
    if verdict.outcome in FAULTS:
        assert reward.value is None
        return
    assert reward.value is not None, "tests count, so there is always something to pay for"
    assert 0 <= reward.value <= 1
    if verdict.tamper or verdict.outcome is Outcome.AGENT_FAULT:
        assert reward.value == 0
        return
    assert sum(reward.parts.values()) == pytest.approx(reward.value, abs=weights.quantum + 1e-9)
    assert all(part >= 0 for part in reward.parts.values())
    assert all(name in reward.why for name in reward.parts if name != "tests")


@given(some_verdicts(st.sampled_from(Outcome)))
def test_by_default_it_is_as_it_was_without_weights(verdict: Verdict) -> None:
    full = verdict.outcome is Outcome.GRADED and verdict.all_passed and not verdict.tamper
    expected = None if verdict.outcome in FAULTS else float(full)
    assert reward_of(verdict).value == expected


@given(some_verdicts(), some_weights(), st.floats(0, 10))
def test_one_more_failing_check_never_raises_it(
    verdict: Verdict, weights: Weights, weight: float
) -> None:
    failing = Check(id="more", status=CheckStatus.WRONG_ANSWER, weight=weight)
    more = replace(verdict, checks=(*verdict.checks, failing))
    alone = (reward_of(verdict, weights), reward_of(more, weights))
    for before, after in (alone, rewards_of_group((verdict, more), weights)):
        assert before.value is not None
        assert after.value is not None
        assert after.value <= before.value


@given(
    some_components(odd=False), some_weights(bounds=False), st.sampled_from(NAMES), SHARES, SHARES
)
def test_a_better_component_never_lowers_it(
    others: tuple[Component, ...], weights: Weights, name: str, one: float, other: float
) -> None:
    rest = tuple(each for each in others if each.name != name)
    low, high = (
        graded(1, 1, (*rest, component(name, share)))
        for share in (min(one, other), max(one, other))
    )
    values = [reward_of(verdict, weights).value for verdict in (low, high)]
    assert values[0] is not None
    assert values[1] is not None
    assert values[0] <= values[1]


@given(st.integers(0, 5), st.integers(1, 5), SHARES, some_weights())
def test_a_passed_check_more_never_lowers_it(
    passed: int, failed: int, baseline: float, weights: Weights
) -> None:
    total = passed + failed
    fewer, more = (
        replace(graded(count, total, ()), baseline=baseline) for count in (passed, passed + 1)
    )
    values = [each.value for each in rewards_of_group((fewer, more), weights)]
    assert values[0] is not None
    assert values[1] is not None
    assert values[0] <= values[1]


@given(some_verdicts(), some_weights())
def test_before_everything_is_correct_only_the_tests_pay(
    verdict: Verdict, weights: Weights
) -> None:
    gated = replace(weights, gate=True)
    if verdict.all_passed:
        verdict = replace(verdict, checks=())
    reward = reward_of(verdict, gated)
    assert not [name for name, part in reward.parts.items() if part and name != "tests"]
    if not gated.partial:
        assert reward.value == 0


@given(st.lists(some_verdicts(st.sampled_from(Outcome)), max_size=5), some_weights(), st.randoms())
def test_the_order_does_not_matter(
    verdicts: list[Verdict], weights: Weights, rng: random.Random
) -> None:
    def shuffled(verdict: Verdict) -> Verdict:
        components = list(verdict.components)
        rng.shuffle(components)
        checks = list(verdict.checks)
        rng.shuffle(checks)
        return replace(verdict, components=tuple(components), checks=tuple(checks))

    places = list(range(len(verdicts)))
    rng.shuffle(places)
    rewards = rewards_of_group(verdicts, weights)
    others = rewards_of_group([shuffled(verdicts[place]) for place in places], weights)
    for place, other in zip(places, others, strict=True):
        assert rewards[place].value == other.value


@given(some_verdicts(), some_weights())
def test_a_reward_is_a_multiple_of_its_quantum(verdict: Verdict, weights: Weights) -> None:
    value = reward_of(verdict, weights).value
    if weights.quantum:
        assert value is not None
        assert value in {
            count / round(1 / weights.quantum) for count in range(round(1 / weights.quantum) + 1)
        }


@given(st.lists(some_verdicts(), min_size=1, max_size=4), some_weights(), st.sampled_from(NAMES))
def test_what_a_fault_left_unmeasured_for_one_counts_for_nobody(
    verdicts: list[Verdict], weights: Weights, name: str
) -> None:
    lost = Component(name=name, raw=None, gap=Gap.INFRA)
    others = tuple(each for each in verdicts[0].components if each.name != name)
    first = replace(verdicts[0], tamper=(), components=(*others, lost))
    without = {key: each for key, each in weights.components.items() if key != name}

    given_up = rewards_of_group([first, *verdicts[1:]], weights)
    expected = rewards_of_group(
        [first, *verdicts[1:]], replace(weights, components=MappingProxyType(without))
    )
    assert [each.value for each in given_up] == [each.value for each in expected]
    assert all(name not in each.parts for each in given_up)


# Examples in figures.

STYLE = Weights(tests=0.8, components=MappingProxyType({"style": ComponentWeight(weight=0.2)}))


def graded(passed: int, total: int, components: tuple[Component, ...] = ()) -> Verdict:
    checks = tuple(
        Check(
            id=str(number),
            status=CheckStatus.PASSED if number < passed else CheckStatus.WRONG_ANSWER,
        )
        for number in range(total)
    )
    return Verdict(outcome=Outcome.GRADED, checks=checks, components=components)


def weighed(name: str = "style", **fields: object) -> Weights:
    weight = replace(ComponentWeight(weight=1.0), **fields)
    return Weights(tests=1.0, components=MappingProxyType({name: weight}))


def test_a_reward_says_what_each_part_gave() -> None:
    reward = reward_of(graded(4, 4, (component("style", 0.5),)), STYLE)
    assert reward.value == pytest.approx(0.9)
    assert reward.parts == pytest.approx({"tests": 0.8, "style": 0.1})
    assert reward.why == "all 4 checks passed, tests 0.8 of 0.8, style 0.1 of 0.2"

    wrong = reward_of(graded(3, 4, (component("style", 1.0),)), replace(STYLE, partial=True))
    assert wrong.value == pytest.approx(0.6)
    assert "style 0 (only a correct answer is paid for it)" in wrong.why


def test_the_best_constant_answer_is_worth_nothing() -> None:
    partial = replace(DEFAULT, partial=True)
    values = [
        reward_of(replace(graded(passed, 10), baseline=0.4), partial).value
        for passed in (0, 4, 7, 10)
    ]
    assert values == pytest.approx([0.0, 0.0, 0.5, 1.0])
    assert reward_of(replace(graded(9, 10), baseline=1.0), partial).value == 0.0


@pytest.mark.parametrize(
    ("bounds", "raw", "reference", "share"),
    [
        (Bounds(best=0, worst=10), 0.0, None, 1.0),
        (Bounds(best=0, worst=10), 4.0, None, 0.6),
        (Bounds(best=0, worst=10), 40.0, None, 0.0),
        (Bounds(best=0, worst=10), math.inf, None, 0.0),
        (Bounds(best=10, worst=0), 4.0, None, 0.4),
        (Bounds(best=1, worst=3, relative=True), 20.0, 10.0, 0.5),
        (Bounds(best=1, worst=3, relative=True), 5.0, 10.0, 1.0),
        (Bounds(best=1, worst=3, relative=True), 0.0, 0.0, 1.0),
        (Bounds(best=1, worst=3, relative=True), 1.0, 0.0, 0.0),
    ],
)
def test_raw_measures_are_normalised_by_bounds(
    bounds: Bounds, raw: float, reference: float | None, share: float
) -> None:
    measured = Component(name="style", raw=raw, normalised=0.123, reference=reference)
    reward = reward_of(graded(1, 1, (measured,)), weighed(bounds=bounds))
    assert reward.value == pytest.approx((1 + share) / 2)


def test_a_measure_without_the_references_is_dropped_when_relative() -> None:
    relative = weighed(bounds=Bounds(best=1, worst=2, relative=True))
    reward = reward_of(graded(1, 1, (component("style", 1.5),)), relative)
    assert reward.value == 0.75
    lacking = replace(component("style", 0.0), reference=None)
    assert reward_of(graded(1, 1, (lacking,)), relative).value == 1.0


def test_a_name_that_nothing_has_is_told_with_what_may_be_meant() -> None:
    misspelt = replace(weighed(), components=MappingProxyType({"stile": ComponentWeight(weight=1)}))
    assert "did you mean style?" in reward_of(graded(1, 1, (component("style", 1),)), misspelt).why
    assert "mean" not in reward_of(graded(1, 1, (component("growth", 1),)), misspelt).why


def test_what_could_not_be_resolved_counts_for_nobody_or_is_worth_nothing() -> None:
    noisy = Component(name="style", raw=None, gap=Gap.UNRESOLVED)
    group = (graded(1, 1, (component("style", 0.5),)), graded(1, 1, (noisy,)))
    assert values(rewards_of_group(group, weighed())) == [1.0, 1.0]
    strict = weighed(unresolved=Unresolved.ZERO)
    assert values(rewards_of_group(group, strict)) == [0.75, 0.5]
    # A wrong answer is not paid for style anyway, so it takes it from nobody.
    wrong = graded(0, 1, (noisy,))
    assert values(rewards_of_group((group[0], wrong), weighed())) == [0.75, 0.0]


def test_nothing_to_measure_by_its_own_doing_is_worth_nothing() -> None:
    nothing = Component(name="style", raw=None, gap=Gap.NOT_POSSIBLE)
    group = (graded(1, 1, (component("style", 0.5),)), graded(1, 1, (nothing,)))
    assert values(rewards_of_group(group, weighed())) == [0.75, 0.5]


def test_only_style_counts_and_is_missing() -> None:
    only = Weights(tests=0.0, components=MappingProxyType({"style": ComponentWeight(weight=1)}))
    lost = graded(1, 1, (Component(name="style", raw=None, gap=Gap.INFRA),))
    assert reward_of(lost, only).value is None
    noisy = graded(1, 1, (Component(name="style", raw=None, gap=Gap.UNRESOLVED),))
    assert reward_of(noisy, only).value == 0.0, "nobody goes unscored by being hard to measure"


def test_small_differences_vanish_in_the_quantum() -> None:
    group = [graded(1, 1, (component("style", share),)) for share in (0.96, 0.98, 0.952)]
    assert len(set(values(rewards_of_group(group, replace(STYLE, quantum=0.05))))) == 1


@pytest.mark.parametrize(("share", "value"), [(0.7, 0.7), (1.0, 1.0), (0.0, 0.0), (1.5, 1.0)])
def test_a_scripts_number_stands_for_the_tests(share: float, value: float) -> None:
    script = Component(name="script", raw=share, normalised=share)
    assert reward_of(graded(0, 1, (script,))).value == value
    assert reward_of(replace(graded(0, 0, (script,)), baseline=0.7)).value == float(share >= 1)


def test_a_scripts_missing_number_is_no_reward() -> None:
    for script in (
        Component(name="script", raw=None, gap=Gap.INFRA),
        Component(name="script", raw=math.nan, normalised=math.nan),
        Component(name="script", raw=7.0, gap=Gap.UNRESOLVED),
    ):
        assert reward_of(graded(1, 1, (script,))).value is None
    nothing = Component(name="script", raw=None, gap=Gap.NOT_POSSIBLE)
    assert reward_of(graded(1, 1, (nothing,))).value == 0.0


def test_bounds_say_what_a_scripts_number_is_worth() -> None:
    weights = weighed("script", bounds=Bounds(best=10, worst=5))
    far = Component(name="script", raw=7.5, gap=Gap.UNRESOLVED)
    reward = reward_of(graded(0, 1, (far,)), weights)
    assert reward.value == 0.5
    assert reward.parts == {"tests": 0.5}


def values(rewards: tuple[Reward, ...]) -> list[float | None]:
    return [None if each.value is None else round(each.value, 9) for each in rewards]


@pytest.mark.parametrize(
    ("verdict", "gates"),
    [
        (graded(2, 2), {"graded": True, "untampered": True, "correct": True}),
        (graded(1, 2), {"graded": True, "untampered": True, "correct": False}),
        (
            replace(graded(2, 2), tamper=("x",)),
            {"graded": True, "untampered": False, "correct": True},
        ),
        (
            Verdict(outcome=Outcome.INFRA_FAULT),
            {"graded": False, "untampered": True, "correct": False},
        ),
    ],
)
def test_the_gates_are_told(verdict: Verdict, gates: dict[str, bool]) -> None:
    assert reward_of(verdict).gates == gates
    assert "correct" not in reward_of(verdict, Weights(gate=False)).gates


def test_components_may_be_all_that_counts() -> None:
    weights = Weights(tests=0.0, components={"style": ComponentWeight(weight=1.0)})
    style = Component(name="style", raw=3, normalised=0.5)
    assert reward_of(graded(1, 1, (style,)), weights).value == 0.5
