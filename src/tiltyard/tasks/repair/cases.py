"""Draws the tests of one task and says whether the fault shows in them.

A fault is usable when it compiles, ends, and fails enough cases; a suite is usable when no single
answer passes more than half of it. Both are decided here, on results, so no fault has to be
proven harmful beforehand.
"""

from dataclasses import dataclass, field
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

_INPUTS_COUNTS = (20, 40)
"""How many inputs to have drawn before each attempt to choose; most faults show in the first."""

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
        trial = _Trial(
            template=template,
            picked=picked,
            right=Program(reference, template.target),
            wrong=Program(faulty, template.target),
        )
        for count in _INPUTS_COUNTS:
            while trial.drawn < count:
                trial.draw(rng)
            if kind is FaultKind.MUTATED_ARGUMENT and not trial.mutates:
                continue
            suites = _chosen(template, list(trial.tried.values()))
            if suites is not None:
                return suites
    except (SyntaxError, OverrunError):
        pass
    return None


@dataclass(slots=True, kw_only=True)
class _Trial:
    """Both programs and what they did on the distinct inputs drawn so far."""

    template: Template
    picked: Picked
    right: Program
    wrong: Program
    tried: dict[str, _Tried] = field(default_factory=dict)
    drawn: int = 0
    mutates: bool = False
    """Whether the faulty program has changed an argument."""

    def draw(self, rng: Random) -> None:
        """One more input. Raises OverrunError."""
        self.drawn += 1
        args = cast("tuple[Value, ...]", self.template.args(rng, self.picked))
        then = self.template.calls(rng, self.picked) if self.template.calls else ()
        expected = self.right.run(args, then)
        if expected.raised is not None:
            then = then[: expected.calls_made]
        text = f"{args!r} {then!r}"
        if text in self.tried:
            return
        got = self.wrong.run(args, then)
        self.mutates = self.mutates or got.arguments_changed
        failing = got.raised != expected.raised or not same(got.value, expected.value)
        if not then and got.arguments_changed:
            failing = True
        self.tried[text] = _Tried(args=args, then=then, right=expected, failing=failing)


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
