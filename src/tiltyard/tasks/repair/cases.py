"""Draws the tests of one task and says whether the fault shows in them.

A fault is usable when it compiles, ends, and fails enough cases; a suite is usable when no single
answer passes more than half of it. Both are decided here, on results, so no fault has to be
proven harmful beforehand.
"""

from dataclasses import dataclass
from random import Random
from typing import cast

from tiltyard.core.task import CallCase, CallSuite, MethodCall
from tiltyard.core.values import Value
from tiltyard.tasks.repair.edits import FaultKind
from tiltyard.tasks.repair.template import Picked, Template
from tiltyard.tasks.repair.trial import Ended, OverrunError, Program, same

VISIBLE_COUNT = 3
HIDDEN_COUNT = 10
HIDDEN_FAILING_MIN = 2
"""Hidden cases that the faulty code must fail."""

_INPUTS_MAX = 40
_SAME_ANSWER_MAX = HIDDEN_COUNT // 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Suites:
    """The two suites of a task; no case is in both."""

    visible: CallSuite
    hidden: CallSuite


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    args: tuple[Value, ...]
    then: tuple[MethodCall, ...]
    right: Ended
    failing: bool

    @property
    def answer(self) -> str:
        """What a program would have to answer; equal texts are equal answers."""
        return f"{self.right.raised} {self.right.value!r}"


def draw_suites(
    template: Template,
    picked: Picked,
    *,
    reference: str,
    faulty: str,
    kind: FaultKind,
    rng: Random,
) -> Suites | None:
    """The suites of a task, or None when the fault or the drawn inputs are of no use."""
    try:
        right = Program(reference, template.target)
        wrong = Program(faulty, template.target)
        tried, mutates = _try_all(template, picked, right=right, wrong=wrong, rng=rng)
    except (SyntaxError, OverrunError):
        return None
    if kind is FaultKind.MUTATED_ARGUMENT and not mutates:
        return None
    return _chosen(template, tried)


def _try_all(
    template: Template, picked: Picked, *, right: Program, wrong: Program, rng: Random
) -> tuple[list[_Tried], bool]:
    """Runs both programs on distinct inputs; also says whether the faulty one changed any."""
    tried: dict[str, _Tried] = {}
    mutates = False
    for _ in range(_INPUTS_MAX):
        args = cast("tuple[Value, ...]", template.args(rng, picked))
        then = template.calls(rng, picked) if template.calls else ()
        expected = right.run(args, then)
        if expected.raised is not None:
            then = then[: expected.calls_made]
        text = f"{args!r} {then!r}"
        if text in tried:
            continue
        got = wrong.run(args, then)
        mutates = mutates or got.arguments_changed
        failing = got.raised != expected.raised or not same(got.value, expected.value)
        if not then and got.arguments_changed:
            failing = True
        tried[text] = _Tried(args=args, then=then, right=expected, failing=failing)
    return list(tried.values()), mutates


def _chosen(template: Template, tried: list[_Tried]) -> Suites | None:
    failing = [one for one in tried if one.failing]
    if len(failing) < HIDDEN_FAILING_MIN + 1:
        return None
    shown = failing[:1]
    rest = [one for one in tried if one is not shown[0]]
    shown += rest[: VISIBLE_COUNT - 1]
    rest = rest[VISIBLE_COUNT - 1 :]
    must = [one for one in rest if one.failing][:HIDDEN_FAILING_MIN]
    hidden: list[_Tried] = []
    answers: dict[str, int] = {}
    others = [one for one in rest if all(one is not first for first in must)]
    for one in [*must, *others]:
        if len(hidden) < HIDDEN_COUNT and answers.get(one.answer, 0) < _SAME_ANSWER_MAX:
            answers[one.answer] = answers.get(one.answer, 0) + 1
            hidden.append(one)
    if len(hidden) < HIDDEN_COUNT or sum(one.failing for one in hidden) < HIDDEN_FAILING_MIN:
        return None
    return Suites(
        visible=_suite(template, "v", shown),
        hidden=_suite(template, "h", hidden),
    )


def _suite(template: Template, prefix: str, chosen: list[_Tried]) -> CallSuite:
    return CallSuite(
        cases=tuple(
            CallCase(
                id=f"{prefix}{number:02d}",
                target=template.target,
                args=one.args,
                then=one.then,
                expected=cast("Value", one.right.value),
                raises=one.right.raised,
                arguments_kept=not one.then and has_mutable(one.args),
            )
            for number, one in enumerate(chosen, 1)
        )
    )


def has_mutable(args: tuple[Value, ...]) -> bool:
    """True when a callee could change one of the arguments."""
    return any(isinstance(arg, (list, dict, set)) for arg in args)
