"""Answers that took no work: they fit the task's names, and never hold what it is about."""

import dataclasses

import pytest

from tiltyard.core.task import (
    ProgramCase,
    ProgramSuite,
    PytestSuite,
    RepositorySuite,
    ScriptSuite,
    Split,
    Suite,
    Task,
)
from tiltyard.tasks.cheap_answers import CONSTANTS, cheap_answers
from tiltyard.tasks.repair import make_task

TASK = dataclasses.replace(
    make_task(1, split=Split.TRAIN),
    starter="",
    reference="""
import asyncio

half = lambda n: n / 2
LIMIT = 3


def double(n):
    return 2 * n


async def wait(n):
    return n


class Pile(list):
    def __init__(self, *items):
        self.items = items

    def top(self):
        return self.items[-1]


class EmptyPile(LookupError):
    pass
""",
)


def sources(task: Task) -> dict[str, str]:
    return {
        answer.name: answer.submission.files["solution.py"].decode()
        for answer in cheap_answers(task)
    }


def loaded(source: str) -> dict[str, object]:
    namespace: dict[str, object] = {"__name__": "solution"}
    exec(compile(source, "<answer>", "exec"), namespace)  # noqa: S102 - made from names only
    return namespace


@pytest.mark.parametrize("constant", CONSTANTS)
def test_a_constant_module_answers_everything_alike(constant: str) -> None:
    module = loaded(sources(TASK)[f"the constant answer {constant}"])
    expected = eval(constant)  # noqa: S307 - one of our own constants
    assert module["double"](7) == expected  # type: ignore[operator]
    assert module["half"](7) == expected  # type: ignore[operator]
    assert module["Pile"](1, 2).top() == expected  # type: ignore[operator]
    assert issubclass(module["EmptyPile"], LookupError)  # type: ignore[arg-type]
    assert "LIMIT" not in module


def test_one_module_gives_back_its_argument() -> None:
    module = loaded(sources(TASK)["the answer that returns its argument"])
    assert (module["double"](7), module["double"]()) == (7, None)  # type: ignore[operator]


@pytest.mark.parametrize("reference", ["def f(:", "x = 1\n", "\0", "(" * 10_000])
def test_a_reference_without_functions_has_no_constants(reference: str) -> None:
    found = list(cheap_answers(dataclasses.replace(TASK, reference=reference, starter="s")))
    assert [answer.name for answer in found] == ["the starter", "an empty module"]


def test_a_constant_program_prints_what_is_printed_most() -> None:
    cases = tuple(
        ProgramCase(id=str(n), expected=text) for n, text in enumerate((b"a\n", b"b\n", b"b\n"))
    )
    suite = ProgramSuite(source="solution.py", run=("python3", "solution.py"), cases=cases)
    found = sources(dataclasses.replace(TASK, hidden=suite))
    assert found["an empty program"] == ""
    assert any("write(b'b\\n')" in source for source in found.values())
    assert not any("b'a" in source for source in found.values())
    compiled = dataclasses.replace(TASK, hidden=dataclasses.replace(suite, source="main.c"))
    (only,) = cheap_answers(compiled)
    assert only.submission.files == {"main.c": b""}


@pytest.mark.parametrize(
    ("suite", "expected"),
    [
        (
            RepositorySuite(
                base={"a": b"1", "b": b"2"},
                tests={},
                reference={"a": b"3", "c": b"4"},
                sources=("**",),
            ),
            {
                "the project unchanged": {"a": b"1", "b": b"2"},
                "the project with emptied sources": {"a": b"", "b": b"2", "c": b""},
            },
        ),
        (
            ScriptSuite(tests={}, reference={"a": b"3"}, base={"b": b"2"}),
            {"nothing done": {"b": b"2"}, "everything deleted": {}},
        ),
        (ScriptSuite(tests={}, reference={}), {"nothing done": {}}),
    ],
)
def test_of_a_project(suite: Suite, expected: dict[str, dict[str, bytes]]) -> None:
    found = cheap_answers(dataclasses.replace(TASK, hidden=suite))
    assert {each.name: dict(each.submission.files) for each in found} == expected


def test_of_pytest_files_too() -> None:
    task = dataclasses.replace(TASK, hidden=PytestSuite(files={}), starter="x = 1\n")
    assert len(sources(task)) == 2 + len(CONSTANTS) + 1
