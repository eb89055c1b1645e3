"""Each family's reference against an answer worked out by hand, and the form of its text."""

import ast
import itertools
from collections.abc import Mapping

import pytest

from tiltyard.core.task import MethodCall
from tiltyard.tasks.repair import TEMPLATES
from tiltyard.tasks.repair.template import LINE_COLUMNS_MAX
from tiltyard.tasks.repair.trial import Program

BY_HAND: Mapping[str, tuple[Mapping[str, str], tuple[object, ...], object]] = {
    "sum_to": ({"k": "3"}, (4,), 30),
    "digit_sum": ({"k": "2"}, (307,), 12),
    "clamp": ({}, (12, -3, 9), 9),
    "grade": ({"low": "40", "high": "80"}, (79,), 1),
    "count_divisors": ({}, (12,), 6),
    "steps_down": ({}, (6,), 4),
    "power": ({}, (-2, 3), -8),
    "bill": ({"price": "4", "limit": "5", "off": "2"}, (5,), 18),
    "median_of_three": ({}, (7, 1, 5), 5),
    "gap": ({"limit": "3"}, (2, -2), 4),
    "next_multiple": ({"k": "5"}, (10,), 15),
    "count_primes": ({}, (12,), 5),
    "digit_count": ({"k": "1"}, (1711,), 3),
    "sum_multiples": ({"k": "3"}, (10,), 18),
    "count_char": ({}, ("abcab", "a"), 2),
    "reverse_text": ({"mark": "+"}, ("abc",), "+cba"),
    "is_palindrome": ({}, ("abcba",), True),
    "keep_digits": ({"none": "x"}, ("a1b22",), "122"),
    "initials": ({"mark": "."}, ("ab cd",), "A.C."),
    "pad_left": ({"fill": "0"}, ("ab", 5), "000ab"),
    "shorten": ({"mark": ".."}, ("abcdef", 4), "abcd.."),
    "squeeze": ({}, ("aabbba",), "aba"),
    "longest_word": ({}, ("ab cde fgh",), "cde"),
    "count_vowels": ({}, ("bAcea",), 3),
    "join_words": ({"k": "2", "mark": "-"}, ("abc de fgh",), "abc-fgh-"),
    "sum_above": ({"k": "3"}, ([3, 4, 5],), 9),
    "count_equal": ({}, ([1, 2, 1], 1), 2),
    "biggest": ({"none": "0"}, ([-3, -1, -2],), -1),
    "first_index": ({"k": "4"}, ([1, 4, 6],), 1),
    "running_sum": ({}, ([1, 2, 3],), [1, 3, 6]),
    "rotate": ({}, ([1, 2, 3, 4], 1), [2, 3, 4, 1]),
    "add_last": ({"k": "2"}, ([5, 6, 7],), [5, 6, 7, 6]),
    "without": ({}, ([1, 2, 1, 3], 1), [2, 3]),
    "pair_sums": ({}, ([1, 2, 4],), [3, 6]),
    "is_sorted": ({}, ([1, 1, 2],), True),
    "sum_until": ({"k": "3"}, ([1, 4, 3, 5],), 5),
    "drop_extremes": ({}, ([4, 1, 3, 9],), [3, 4]),
    "set_first": ({}, ([1, 2], 7), [7, 2]),
    "smallest_gap": ({"none": "0"}, ([1, 6, 4],), 2),
    "swap_ends": ({}, ([1, 2, 3],), [3, 2, 1]),
    "count_chars": ({}, ("aba",), {"a": 2, "b": 1}),
    "sum_values": ({"k": "4"}, ({"a": 4, "b": 3, "c": 6},), 10),
    "add_stock": ({}, ({"a": 1}, "b", 5), {"a": 1, "b": 5}),
    "without_key": ({}, ({"a": 1, "b": 2}, "a"), {"b": 2}),
    "best_key": ({}, ({"a": 1, "b": 4, "c": 4},), "b"),
    "keys_below": ({"k": "3"}, ({"b": 1, "a": 2, "c": 3},), ["a", "b"]),
    "merge_sums": ({}, ({"a": 1}, {"a": 2, "b": 3}), {"a": 3, "b": 3}),
    "invoice": ({"k": "5"}, ({"a": 2}, ["a", "z", "a"]), 9),
    "scale_values": ({"k": "3"}, ({"a": 2},), {"a": 6}),
    "count_over": ({"k": "3"}, ({"a": 3, "b": 4},), 1),
    "move_stock": ({}, ({"a": 5, "b": 1}, 5), {"a": 0, "b": 6}),
    "factorial": ({"k": "2"}, (4,), 48),
    "series": ({}, (5, 0, 1), 5),
    "gcd": ({}, (12, 18), 6),
    "sum_list": ({"k": "1"}, ([1, 2, 3],), 7),
    "flatten": ({}, ([1, [2, [3]], []],), [1, 2, 3]),
    "reverse_word": ({}, ("abc",), "cba"),
    "count_in": ({"k": "3"}, ([3, 4, 9, 1],), 2),
    "to_binary": ({"k": "3"}, (11,), "102"),
    "find_half": ({}, ([1, 4, 6, 9], 6, 0, 4), 2),
    "sum_digits": ({"k": "2"}, (123,), 12),
    "depth": ({}, ([1, [2, [3]], [4]],), 3),
}

DRIVEN: Mapping[str, tuple[Mapping[str, str], tuple[object, ...], str, object]] = {
    "counter": ({"k": "2"}, (3,), "up 4, down 6, down 9", [11, 5, 0]),
    "account": ({"k": "1"}, (10,), "take 4, add 2, take 6", [5, 7, 0]),
    "stack": ({"none": "0"}, (), "push 4, push 5, pop, pop, pop", [1, 2, 5, 4, 0]),
    "queue": ({"k": "2"}, (), "put 4, put 5, put 6, get, get, get", [True, True, False, 4, 5, 0]),
    "meter": ({}, (), "mean, add 4, add 7, mean", [0, 4, 11, 5]),
    "stock": ({}, (), "put a 3, put a 2, left a, left b", [3, 5, 5, 0]),
    "range_box": ({}, (2, 5), "has 2, has 5, grow 1, has 5", [True, False, 5, True]),
    "walker": ({}, (1, -1), "go 2 -3, far", [[3, -4], 7]),
    "high_score": ({"k": "3"}, (), "play 4, play 2, bonus", [4, 4, 6]),
    "tank": ({}, (8,), "fill 5, fill 5, drain 3, drain 9", [5, 8, 5, 0]),
    "votes": ({"k": "2"}, (), "lead, vote a, vote a, vote b, lead", [0, 2, 4, 2, 4]),
}


def calls(text: str) -> tuple[MethodCall, ...]:
    made = []
    for part in text.split(", "):
        name, *args = part.split()
        numbers = (int(arg) if arg.lstrip("-").isdigit() else arg for arg in args)
        made.append(MethodCall(name=name, args=tuple(numbers)))
    return tuple(made)


def picked(family: str, overrides: Mapping[str, str]) -> dict[str, str]:
    options = TEMPLATES[family].options
    assert all(value in options[place] for place, value in overrides.items())
    return {place: choices[0] for place, choices in options.items()} | dict(overrides)


def names_of(text: str) -> set[tuple[str, str]]:
    """Variables and attributes of a source, apart from each other."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Name(id=name) | ast.arg(arg=name):
                found.add(("variable", name))
            case ast.Attribute(attr=name):
                found.add(("attribute", name))
            case _:
                pass
    return found


def test_every_family_has_an_answer_by_hand() -> None:
    assert {*BY_HAND, *DRIVEN} == set(TEMPLATES)


@pytest.mark.parametrize("family", BY_HAND)
def test_a_function_gives_the_answer_worked_out_by_hand(family: str) -> None:
    overrides, args, expected = BY_HAND[family]
    program = Program(TEMPLATES[family].render(picked(family, overrides)), family)
    ended = program.run(args)  # type: ignore[arg-type]
    assert (ended.value, ended.arguments_changed) == (expected, False)


@pytest.mark.parametrize("family", DRIVEN)
def test_a_class_gives_the_answers_worked_out_by_hand(family: str) -> None:
    overrides, args, steps, expected = DRIVEN[family]
    template = TEMPLATES[family]
    program = Program(template.render(picked(family, overrides)), template.target)
    assert program.run(args, calls(steps)).value == expected  # type: ignore[arg-type]


def test_a_withdrawal_beyond_the_balance_is_refused() -> None:
    template = TEMPLATES["account"]
    program = Program(template.render(picked("account", {"k": "1"})), template.target)
    ended = program.run((10,), calls("take 9, take 1"))
    assert (ended.raised, ended.calls_made) == ("ValueError", 2)


@pytest.mark.parametrize("family", TEMPLATES)
def test_every_text_of_a_family_compiles_is_short_and_mixes_up_no_names(family: str) -> None:
    template = TEMPLATES[family]
    texts, shapes = set(), set()
    for choices in itertools.product(*template.options.values()):
        chosen = dict(zip(template.options, choices, strict=True))
        text = template.render(chosen)
        texts.add(text)
        assert max(map(len, text.split("\n"))) <= LINE_COLUMNS_MAX
        assert text.isascii()
        assert "$" not in text + template.describe(chosen)
        names = [name for name in chosen.values() if name.isidentifier() and name != "None"]
        assert len(set(names)) == len(names)
        # A place that took a name the text has already would make fewer names than another text.
        shapes.add(len(names_of(text)))
    assert len(texts) >= 3
    assert len(shapes) == 1
