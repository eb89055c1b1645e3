"""Answers that took no work, by which a task is tried: none of them may earn its reward. Pure.

Of a function task's reference only the names of what it defines are read, never what it does.
"""

import ast
import builtins
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tiltyard.core.task import (
    CallSuite,
    ProgramSuite,
    PytestSuite,
    RepositorySuite,
    ScriptSuite,
    Submission,
    Task,
)
from tiltyard.verify.submission import wanted_file

CONSTANTS = ("None", "0", "1", "True", "False", "''", "[]", "{}")
PRINTED = (b"0\n", b"1\n", b"-1\n", b"YES\n", b"NO\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheapAnswer:
    """A submission that must not be paid."""

    name: str
    """As the beginning of a sentence."""
    submission: Submission
    constant: bool = False
    """It answers every question in the same way, so what it scores is worth nothing."""


def cheap_answers(task: Task) -> Iterator[CheapAnswer]:
    """The answers that fit a task's kind, those that are most telling first."""
    match task.hidden:
        case CallSuite() | PytestSuite():
            yield from _sources(task, "an empty module")
            yield from _constant_modules(task)
        case ProgramSuite() as suite:
            yield from _sources(task, "an empty program")
            yield from _constant_programs(suite)
        case RepositorySuite(base=base, reference=reference):
            yield CheapAnswer(name="the project unchanged", submission=Submission(files=base))
            emptied = {**base, **dict.fromkeys(reference, b"")}
            yield CheapAnswer(
                name="the project with emptied sources", submission=Submission(files=emptied)
            )
        case ScriptSuite(base=base):
            yield CheapAnswer(name="nothing done", submission=Submission(files=base))
            if base:
                yield CheapAnswer(name="everything deleted", submission=Submission(files={}))


def _sources(task: Task, empty: str) -> Iterator[CheapAnswer]:
    file = wanted_file(task)
    if task.starter:
        content = task.starter.encode("utf-8", "replace")
        yield CheapAnswer(name="the starter", submission=Submission(files={file: content}))
    yield CheapAnswer(name=empty, submission=Submission(files={file: b""}))


def _constant_modules(task: Task) -> Iterator[CheapAnswer]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            body = ast.parse(task.reference).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # The reference is told to fail by whoever runs it.
    answers = {f"the constant answer {value}": value for value in CONSTANTS}
    answers["the answer that returns its argument"] = "args[0] if args else None"
    for name, value in answers.items():
        source = "\n\n".join(_stubs(body, value))
        if source:
            files = {wanted_file(task): f"{source}\n".encode("utf-8", "replace")}
            yield CheapAnswer(name=name, submission=Submission(files=files), constant=True)


def _stubs(body: list[ast.stmt], value: str) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name):
                yield f"def {name}(*args, **kwargs):\n    return {value}"
            case ast.AsyncFunctionDef(name=name):
                yield f"async def {name}(*args, **kwargs):\n    return {value}"
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()):
                yield f"def {name}(*args, **kwargs):\n    return {value}"
            case ast.ClassDef(name=name):
                yield _class_stub(node, name, value)


def _class_stub(node: ast.ClassDef, name: str, value: str) -> str:
    bases = [base.id for base in node.bases if isinstance(base, ast.Name) and _is_error(base.id)]
    methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
    lines = [f"class {name}({', '.join(bases)}):", "    pass"]
    for method in methods:
        answer = "None" if method == "__init__" else value
        lines += ["", f"    def {method}(self, *args, **kwargs):", f"        return {answer}"]
    return "\n".join(lines)


def _is_error(name: str) -> bool:
    kind = getattr(builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, Exception)


def _constant_programs(suite: ProgramSuite) -> Iterator[CheapAnswer]:
    """In Python only: of another language nothing is known but that an empty file is no answer."""
    if not suite.source.endswith(".py"):
        return
    common = Counter(case.expected for case in suite.cases).most_common(1)
    for printed in dict.fromkeys((*(text for text, _ in common), *PRINTED)):
        source = f"import sys\n\nsys.stdout.buffer.write({printed!r})\n"
        name = f"the program that always prints {printed[:20]!r}"
        files = {suite.source: source.encode()}
        yield CheapAnswer(name=name, submission=Submission(files=files), constant=True)
