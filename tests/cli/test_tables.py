"""Ids can be copied from tables of any width."""

import io

import pytest
from rich.console import Console
from rich.text import Text

from tiltyard.cli.tables import print_table

ID = "tests/deep/test_numbers.py::Derived::test_kind[a long parameter-10]"
WORDS = "assert clamp(11) == 10, which says in many words what was wrong with the answer"
NAMES = ("check", "", "evidence")


def printed(width: int, *rows: tuple[str | Text, ...], ids: int = 1) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False)
    print_table(console, NAMES, rows, ids=ids, title="Checks of it")
    return out.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 200])
def test_an_id_is_never_in_two_parts(width: int) -> None:
    lines = printed(width, (ID, "wrong_answer", WORDS), ("short", Text("passed"), ""))

    assert sum(ID in line for line in lines) == 1
    assert [line for line in lines if "Checks of it" in line]
    told = " ".join(" ".join(lines).replace("│", " ").split())
    assert all(word in told for word in ("wrong_answer", "passed", *WORDS.split()))
    assert all(len(line) <= max(width, len(ID)) for line in lines)


def test_with_room_it_is_a_table() -> None:
    (row,) = [line for line in printed(200, (ID, "wrong_answer", WORDS)) if ID in line]

    assert WORDS in row


def test_without_room_the_id_stands_alone() -> None:
    lines = printed(60, (ID, "wrong_answer", "two\nlines"))

    assert [line.rstrip() for line in lines[1:]] == [
        ID,
        "    wrong_answer",
        "    evidence: two",
        "    lines",
    ]


@pytest.mark.parametrize("width", [60, 80])
def test_two_ids_are_both_whole(width: int) -> None:
    lines = printed(width, (ID, "d-another-long-name-of-a-cheat", WORDS), ids=2)

    assert any(ID in line and "d-another-long-name-of-a-cheat" in line for line in lines)
