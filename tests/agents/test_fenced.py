"""What a chat model is asked, and what counts as its answer."""

import pytest
from hypothesis import given, strategies as st

from tiltyard.agents.fenced import ANSWER_CHARACTERS_MAX, Role, read_fenced, render
from tiltyard.core.ids import TaskId
from tiltyard.core.trajectory import Observation, PolicyReply, Prompt, Step

CODE = "def f(x):\n    return x + 1\n"
lines_of_code = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"))


def prompt(code: str = CODE, *earlier: Step) -> Prompt:
    return Prompt(task_id=TaskId("t"), instruction="Repair `f`.", code=code, earlier=earlier)


def step(text: str, *, code: str | None, said: str | None, problem: str = "") -> Step:
    return Step(
        reply=PolicyReply(text=text, policy_version="1"),
        code=code,
        problem=problem,
        observation=None if said is None else Observation(text=said, solved=False),
    )


@pytest.mark.parametrize(
    "text",
    [
        f"```python\n{CODE}```",
        f"Here it is:\n\n```\n{CODE}```\nThe `+` was wrong.",
        f"  ```py title=solution.py\n{CODE}   ```  \n",
        f"````\n{CODE}````",
        f"```python\n{CODE}``````",
        f"```python\n{CODE}```".replace("\n", "\r\n"),
        f"inline ```code``` first\n```python\n{CODE}```",
    ],
)
def test_one_block_is_the_module(text: str) -> None:
    answer = read_fenced("ignored", text)
    assert (answer.code, answer.problem) == (CODE, "")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no fenced code block"),
        (CODE, "no fenced code block"),
        ("    ```\nindented, so it is no fence\n    ```", "no fenced code block"),
        (f"```\n{CODE}```\n```\n{CODE}```", "has 2 fenced code blocks"),
        (f"```python\n{CODE}", "ends within a code block"),
        (f"````\n{CODE}```", "ends within a code block"),
        (f"```\n{CODE}```\nand\n```", "ends within a code block"),
        ("```\n```", "code block is empty"),
        ("```\n \t\n```", "code block is empty"),
        ("\udcff" + f"```\n{CODE}```", "not valid Unicode"),
        ("x" * (ANSWER_CHARACTERS_MAX + 1), "longer than 1000000 characters"),
    ],
)
def test_anything_else_is_a_problem_in_words(text: str, problem: str) -> None:
    answer = read_fenced("ignored", text)
    assert answer.code is None
    assert problem in answer.problem


@given(st.text(st.characters()) | st.text("`\n \rpython"))
def test_no_text_makes_the_reader_fail(text: str) -> None:
    answer = read_fenced("", text)
    assert (answer.code is None) == bool(answer.problem)


@given(lines_of_code.filter(str.strip) | st.text("`~\n x").filter(str.strip))
def test_the_module_as_it_is_shown_reads_back_as_it_is(code: str) -> None:
    shown = render(prompt(code))[-1].content
    assert read_fenced("", shown).code == code.removesuffix("\n") + "\n"


def test_the_first_turn_shows_the_task_and_the_module() -> None:
    system, user = render(prompt())
    assert (system.role, user.role) == (Role.SYSTEM, Role.USER)
    assert "exactly one fenced code block" in system.content
    assert user.content.startswith("Repair `f`.")
    assert f"```python\n{CODE}```" in user.content


def test_later_turns_show_what_was_tried_and_what_came_of_it() -> None:
    messages = render(
        prompt(
            "new code\n",
            step("first try", code="new code\n", said="f(1) gave 3, expected 2"),
            step("second try", code=None, said=None, problem="no fenced code block"),
        )
    )
    roles = [message.role for message in messages]
    assert roles == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER, Role.ASSISTANT, Role.USER]
    assert [messages[2].content, messages[4].content] == ["first try", "second try"]
    assert "f(1) gave 3, expected 2" in messages[3].content
    assert "no fenced code block" in messages[5].content
    shown = [
        message.content for message in messages if "```python\nnew code\n```" in message.content
    ]
    assert shown == [messages[5].content]


def test_an_answer_that_ran_away_does_not_fill_every_later_prompt() -> None:
    long = step("x" * 900_000, code=None, said="y" * 900_000)
    total = sum(len(message.content) for message in render(prompt(CODE, long)))
    assert total < 20_000
