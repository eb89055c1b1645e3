"""Every kind of fault, on sources that show it, and the bounds of the trial that judges them."""

import pytest

from tiltyard.core.task import MethodCall
from tiltyard.tasks.repair import TEMPLATES, FaultKind
from tiltyard.tasks.repair.faults import faults_of
from tiltyard.tasks.repair.trial import OverrunError, Program, same

SOURCE = """\
def pick(items, limit):
    out = list(items)
    total = 0
    if not out: return False
    for i in range(len(out) - 1):
        if out[i] > limit: break
        total += (out[i] + 1) * 2
    if limit in out and total >= 3:
        total = max(total, limit) - 1
    return total
"""

BOX = """\
class Box:
    def __init__(self, size):
        self.size = size
        self.used = 0

    def put(self, n):
        self.used += n
        return self.size - self.used
"""


@pytest.mark.parametrize(
    ("kind", "line_number", "line"),
    [
        (FaultKind.OPERATOR, 7, "        total += (out[i] + 1) + 2"),
        (FaultKind.OPERATOR, 7, "        total += (out[i] - 1) * 2"),
        (FaultKind.OPERATOR, 7, "        total -= (out[i] + 1) * 2"),
        (FaultKind.OPERATOR, 8, "    if limit in out or total >= 3:"),
        (FaultKind.OPERATOR, 8, "    if limit not in out and total >= 3:"),
        (FaultKind.COMPARISON, 8, "    if limit in out and total > 3:"),
        (FaultKind.COMPARISON, 6, "        if out[i] < limit: break"),
        (FaultKind.OFF_BY_ONE, 5, "    for i in range(len(out)):"),
        (FaultKind.OFF_BY_ONE, 7, "        total += (out[i] + 1) * 3"),
        (FaultKind.WRONG_VARIABLE, 6, "        if out[i] > total: break"),
        (FaultKind.WRONG_INITIAL_VALUE, 3, "    total = 1"),
        (FaultKind.DROPPED_BRANCH, 4, "    pass"),
        (FaultKind.DROPPED_STATEMENT, 7, "        pass"),
        (FaultKind.SWAPPED_ARGUMENTS, 9, "        total = max(limit, total) - 1"),
        (FaultKind.WRONG_RETURN, 10, "    return limit"),
        (FaultKind.WRONG_RETURN, 4, "    if not out: return True"),
        (FaultKind.MUTATED_ARGUMENT, 2, "    out = items"),
        (FaultKind.WRONG_CALL, 9, "        total = min(total, limit) - 1"),
        (FaultKind.NEGATED_CONDITION, 4, "    if out: return False"),
        (FaultKind.WRONG_JUMP, 6, "        if out[i] > limit: continue"),
        (FaultKind.WRONG_INDENT, 10, "        return total"),
        (FaultKind.SWAPPED_OPERANDS, 5, "    for i in range(1 - len(out)):"),
    ],
)
def test_a_kind_of_fault_makes_this_line(kind: FaultKind, line_number: int, line: str) -> None:
    found = {(fault.line_number, fault.line): fault.kind for fault in faults_of(SOURCE)}
    assert found[line_number, line] is kind


def test_a_class_gets_wrong_attributes_but_keeps_its_methods_apart() -> None:
    lines = {(fault.kind, fault.line) for fault in faults_of(BOX)}
    assert (FaultKind.WRONG_VARIABLE, "        return self.used - self.used") in lines
    assert not [line for kind, line in lines if kind is FaultKind.WRONG_INDENT]


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_fault_changes_its_line_and_no_other(family: str) -> None:
    template = TEMPLATES[family]
    source = template.render({place: options[0] for place, options in template.options.items()})
    faults = faults_of(source)
    assert len(faults) == len({(fault.line_number, fault.line) for fault in faults})
    for fault in faults:
        changed = [
            number
            for number, (old, new) in enumerate(
                zip(source.split("\n"), fault.apply(source).split("\n"), strict=True), 1
            )
            if old != new
        ]
        assert changed == [fault.line_number]


@pytest.mark.parametrize(
    "body",
    [
        "while True: pass",
        "while True: n = n + n",
        "while True: n *= n + 2",
        "return f(n)",
        "out = [n]\n    while True: out.extend(out)",
        "out = 'ab'\n    while True: out = out + out",
        "for i in range(10 ** 12): n = i",
    ],
)
def test_what_never_ends_is_cut_off(body: str) -> None:
    program = Program(f"def f(n):\n    {body}\n    return n\n", "f")
    with pytest.raises(OverrunError):
        program.run((1,))
    assert Program("def f(n):\n    return n\n", "f").run((1,)).value == 1


def test_the_bound_is_for_each_case_alone() -> None:
    program = Program("def f(n):\n    for i in range(n): pass\n    return i\n", "f")
    assert [program.run((300,)).value for _ in range(3)] == [299, 299, 299]


def test_a_trial_says_how_it_ended() -> None:
    source = (
        "class A:\n    def go(self, n):\n        if n > 1: raise ValueError\n        return n\n"
    )
    program = Program(source, "A")
    ended = program.run((), tuple(MethodCall(name="go", args=(n,)) for n in (0, 2, 1)))
    assert (ended.raised, ended.calls_made) == ("ValueError", 2)
    ended = Program("def f(xs):\n    xs[0].append(1)\n    return xs\n", "f").run(([[]],))
    assert ended.arguments_changed


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, True, False),
        (1, 1.0, False),
        (0.1 + 0.2, 0.3, True),
        ([1, 2], [1, 2], True),
        ([1, 2], (1, 2), False),
        ([1], [1, 2], False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        (None, 0, False),
    ],
)
def test_same_compares_types_as_well(left: object, right: object, *, expected: bool) -> None:
    assert same(left, right) is expected
