"""False constants look like the true ones that they stand for."""

import ast
import random
import re

import pytest

from tiltyard.verify.overlay.looks import like, other
from tiltyard.verify.overlay.nearness import EXACT

FORMS = [
    ('"hello-world"', r'"[a-z]+-[a-z]+"'),
    ("'XIV'", r"'[XIV]+'|'X[A-Z]V'|'[A-Z]IV'|'XI[A-Z]'"),
    ('b"abc"', r'b"[a-z]+"'),
    ('"it\'s"', r'"[a-z]+\'[a-z]*"'),
    ("'say \"x\"'", r"'[a-z]+ \"[a-z]*\"'"),
    ('r"\\d+a"', r'r"\\[a-z]*\+[a-z]*"'),
    ('"a\\nb"', r'"[a-z]\\n[a-z]"'),
    ('"""one\ntwo"""', r'"""[a-z]+\n[a-z]+"""'),
    ('"é1"', r'"é[0-9]"'),
    ('""', r'"[a-z]"'),
    ("2.50", r"[0-9]\.[0-9]0"),
    ("1e-3", r"[0-9]e-3"),
    ("0xFF", r"0x[0-9A-F]{2,3}"),
    ("2_000_000", r"[0-9]_000_000"),
    ("1000", r"[1-9]000"),
    ("0", r"[1-9]"),
    ("3", r"[0-9]|1[0-2]"),
]


def drawn(text: str) -> list[str]:
    """What two hundred seeds make of a constant; each is a constant and another one."""
    old = ast.literal_eval(text)
    found: list[str] = []
    for seed in range(200):
        value = other(old, random.Random(seed), EXACT)  # noqa: S311 - the same every time
        found.append(like(text.encode(), value).decode())
        assert ast.literal_eval(found[-1]) == value != old
    return found


@pytest.mark.parametrize(("text", "form"), FORMS)
def test_another_constant_is_written_as_the_old_one_was(text: str, form: str) -> None:
    assert [each for each in drawn(text) if not re.fullmatch(form, each)] == []


@pytest.mark.parametrize("text", ["0.785", "12.5", "40", "4181", "250.0"])
def test_false_numbers_are_on_both_sides_and_near_and_far(text: str) -> None:
    shares = [ast.literal_eval(each) / ast.literal_eval(text) for each in drawn(text)]
    assert min(shares) < 0.9
    assert max(shares) > 1.1
    assert any(0.8 < each < 1.25 for each in shares)


@pytest.mark.parametrize("text", ["'Content-Type'", "'A b  C'", "'1.0.0'", "'a_b'"])
def test_case_and_what_is_no_letter_say_nothing(text: str) -> None:
    def heard(said: str) -> str:
        return "".join(filter(str.isalnum, said)).lower()

    old = ast.literal_eval(text)
    assert all(heard(ast.literal_eval(each)) != heard(old) for each in drawn(text))
