"""Tests that need others are found by runs without some of them, here of a reference that is told
what each test needs."""

import asyncio
import random
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.errors import UnsoundTask
from tiltyard.verify.overlay.apart import digits_out, set_apart, some_out
from tiltyard.verify.overlay.canaries import Kind, canaries_of
from tiltyard.verify.overlay.draw import Suite
from tiltyard.verify.overlay.fixed import Module
from tiltyard.verify.overlay.plan import Plan, Tried
from tiltyard.verify.overlay.session import Report
from tiltyard.verify.overlay.source import TestFunction, read
from verify.repositories import repository

NAMES = tuple(f"{file}{number}" for file in "ab" for number in range(7))
FILES = read(
    {
        f"tests/test_{file}.py": "".join(
            f"def test_{name}():\n    assert f({number}) == {number}\n"
            for number, name in enumerate(NAMES)
            if name[0] == file
        ).encode()
        for file in "ab"
    }
)
BY_NAME = {each.name[5:]: each for file in FILES.values() for each in file.functions}


def rng_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - tests draw the same every time


def tried() -> tuple[Tried, ...]:
    return tuple(
        Tried(canary=canary, beside={})
        for file in FILES.values()
        for canary in canaries_of(file, Module(file.tree, frozenset()), rng_of(0))
        if canary.kind is Kind.NEGATED
    )


def watched(
    needs: Mapping[str, set[str]], *, also_false: bool, movable: Collection[str] = NAMES
) -> set[str]:
    """What is left of `movable` to be false where a test fails unless those that it needs ran
    before it, and, where `also_false`, passed."""

    async def trial(plan: Plan, _tests: int) -> Report:
        missing = {each.name[5:] for each in plan.forms.absent}
        missing |= {each.name[5:] for each in plan.forms.false} if also_false else set()
        results = {
            plan.in_run(test_id): [("wrong" if needs.get(name, set()) & missing else "passed", "")]
            for test_id, name in ((each, each.rpartition("test_")[2]) for each in plan.ids)
        }
        return Report(results=results, collected=tuple(results))

    suite = Suite(
        files=FILES,
        renamed=frozenset(),
        owners={each.place: each for each in BY_NAME.values()},
        groups=tuple((BY_NAME[each],) for each in movable),
        kept=frozenset(),
    )
    given = tuple(each for each in tried() if each.canary.function.name[5:] in movable)
    left, some, words = asyncio.run(set_apart(repository(), suite, given, trial, rng_of(1)))
    names = {each.name[5:] for group in left.groups for each in group}
    assert {each.canary.function.name[5:] for each in some} == names
    assert bool(words) == bool(needs)
    return names


@pytest.mark.parametrize("also_false", [False, True])
@pytest.mark.parametrize(
    ("needs", "gone"),
    [
        ({}, set()),
        ({"a3": {"a2"}}, {"a2", "a3"}),
        ({"b0": {"a0"}}, {"a0", "b0"}),
        ({"a1": {"a0"}, "a5": {"b6"}}, {"a0", "a1", "a5", "b6"}),
    ],
)
def test_who_needs_another_is_set_apart_with_it(
    needs: dict[str, set[str]], gone: set[str], also_false: bool
) -> None:
    assert watched(needs, also_false=also_false) == set(NAMES) - gone


@pytest.mark.parametrize("also_false", [False, True])
def test_the_only_one_that_may_be_false_is_set_apart_where_another_needs_it(
    also_false: bool,
) -> None:
    assert watched({"b3": {"a2"}}, also_false=also_false, movable=["a2"]) == set()
    assert watched({}, also_false=also_false, movable=["a2"]) == {"a2"}


def test_a_file_whose_tests_need_many_is_set_apart() -> None:
    chain = {f"a{number}": {f"a{below}" for below in range(number)} for number in range(1, 7)}
    assert watched(chain, also_false=True) == {name for name in NAMES if name[0] == "b"}


def test_a_reference_that_always_fails_one_is_refused() -> None:
    async def trial(plan: Plan, _tests: int) -> Report:
        results = {plan.in_run(each): [("passed", "")] for each in plan.ids if "a4" not in each}
        return Report(results=results, collected=tuple(results))

    others = [each for each in BY_NAME.values() if each.name != "test_a4"]
    suite = Suite(
        files=FILES,
        renamed=frozenset(),
        owners={BY_NAME["a4"].place: None, **{each.place: each for each in others}},
        groups=tuple((each,) for each in others),
        kept=frozenset(),
    )
    with pytest.raises(UnsoundTask, match="test_a4: it never reported"):
        asyncio.run(set_apart(repository(), suite, (), trial, rng_of(1)))


@given(st.integers(0, 80))
def test_every_one_is_in_a_set_without_any_other(count: int) -> None:
    base = BY_NAME["a0"]
    functions = [
        TestFunction(file="x", scope=(), name=str(n), node=base.node, start=0, end=0, named_at=0)
        for n in range(count)
    ]
    for sets in (some_out(functions), digits_out(functions)):
        for one in functions:
            for other in functions:
                assert one is other or any(one in out and other not in out for out in sets)
            assert any(one in out for out in sets)
    if count > 8:
        assert len(some_out(functions)) < len(digits_out(functions))
