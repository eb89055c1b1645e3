"""The answer format holds against whatever a policy writes."""

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.task import Split
from tiltyard.tasks.repair import make_task
from tiltyard.training.answer import (
    ANSWER_CHARS_MAX,
    AnswerMalformed,
    apply_answer,
    read_answer,
    render_answer,
    render_prompt,
)

pytestmark = pytest.mark.train

CODE = "def f(x):\n    return x\n"


def test_an_answer_replaces_the_numbered_line() -> None:
    assert apply_answer(CODE, "2|    return x + 1\n") == "def f(x):\n    return x + 1\n"
    assert apply_answer(CODE, " 1|def g(x):") == "def g(x):\n    return x\n"


def test_a_bar_in_the_new_line_belongs_to_it() -> None:
    assert apply_answer(CODE, "2|    return x | 3").endswith("    return x | 3\n")


@pytest.mark.parametrize("seed", range(20))
def test_the_rendered_repair_of_a_task_gives_its_reference(seed: int) -> None:
    task = make_task(seed, split=Split.TRAIN)
    answer = render_answer(task.starter, task.reference)
    assert apply_answer(task.starter, answer) == task.reference


def test_a_prompt_has_the_instruction_without_examples_and_the_numbered_code() -> None:
    said = "Repair `f`. Return the\nnumber.\n\nExamples:\nf(1) == 1"
    assert render_prompt(said, CODE) == "Return the number.\n1|def f(x):\n2|    return x\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "not `line number"),
        ("return x", "not `line number"),
        ("2:    return x", "not `line number"),
        ("-1|x", "not `line number"),
        ("1234567|x", "not `line number"),
        ("2|a\n1|b\n", "not `line number"),
        ("0|x", "names line 0; the code has 2 lines"),
        ("3|x", "names line 3; the code has 2 lines"),
        ("2|    return x", "leaves line 2 as it is"),
        ("2|x\x00", "holds the character"),
        ("2|x\r", "holds the character"),
        ("2|x\u2028y", "holds the character"),
        ("2|\ud800", "UTF-8"),
        ("\uff12|x", "not `line number"),
    ],
)
def test_a_malformed_answer_is_refused_in_words(text: str, problem: str) -> None:
    with pytest.raises(AnswerMalformed, match=problem):
        apply_answer(CODE, text)
    answer = read_answer(CODE, text)
    assert answer.code is None
    assert problem in answer.problem


def test_a_huge_answer_is_refused_unread_and_its_problem_stays_short() -> None:
    huge = "2|" + "x" * 100_000_000
    answer = read_answer(CODE, huge)
    assert answer.code is None
    assert len(answer.problem) < 200
    assert read_answer(CODE, "2|" + "x" * (ANSWER_CHARS_MAX - 2)).code is not None


@given(st.text(max_size=60))
def test_reading_never_raises_and_changes_one_line_at_most(text: str) -> None:
    answer = read_answer(CODE, text)
    if answer.code is None:
        assert answer.problem
        return
    before, after = CODE.split("\n"), answer.code.split("\n")
    assert len(before) == len(after)
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= 1
    answer.code.encode()


@given(st.integers(1, 2), st.text(alphabet="abc |=()0123", max_size=40))
def test_a_well_formed_answer_is_applied(number: int, line: str) -> None:
    assert apply_answer(CODE, f"{number}|{line}\n").split("\n")[number - 1] == line


def test_codes_that_differ_elsewhere_have_no_answer() -> None:
    with pytest.raises(AnswerMalformed):
        render_answer(CODE, CODE)
    with pytest.raises(AnswerMalformed):
        render_answer(CODE, "def g(x):\n    return 1\n")
