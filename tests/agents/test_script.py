"""Scripted answers: by task and turn, and clear words for a file that is no script."""

import os
from pathlib import Path

import pytest

from tiltyard.agents import ScriptedPolicy, read_fenced
from tiltyard.core.errors import PolicyError, UsageError
from tiltyard.core.ids import TaskId
from tiltyard.core.trajectory import PolicyReply, Prompt, Step


def script(tmp_path: Path, content: str | bytes, name: str = "answers.json") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def prompt(task: str, turn: int = 0) -> Prompt:
    earlier = (Step(reply=PolicyReply(text="", policy_version=""), code=None),) * turn
    return Prompt(task_id=TaskId(task), instruction="", code="", earlier=earlier)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("answers.json", '{"a": ["one", "two"],\n "*": ["any"]}'),
        ("a.jsonl", '{"task": "a", "answers": ["one", "two"]}\n\n{"task":"*","answers":["any"]}\n'),
    ],
)
async def test_answers_come_by_task_and_turn(tmp_path: Path, name: str, content: str) -> None:
    policy = ScriptedPolicy(script(tmp_path, content, name))
    asked = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 5)]
    replies = [await policy.respond(prompt(task, turn)) for task, turn in asked]
    assert [reply.text for reply in replies] == ["one", "two", "two", "any", "any"]
    assert len({reply.policy_version for reply in replies}) == 1
    await policy.aclose()


async def test_another_script_is_another_version(tmp_path: Path) -> None:
    one = await ScriptedPolicy(script(tmp_path, '{"*": ["x"]}')).respond(prompt("a"))
    two = await ScriptedPolicy(script(tmp_path, '{"*": ["y"]}')).respond(prompt("a"))
    assert one.policy_version != two.policy_version


async def test_a_task_without_answers_is_named(tmp_path: Path) -> None:
    policy = ScriptedPolicy(script(tmp_path, '{"a": ["one"]}'))
    assert policy.lacking(map(TaskId, "abc")) == ["b", "c"]
    with pytest.raises(PolicyError, match=r"answers\.json has no answer for task b\. Fix: Add"):
        await policy.respond(prompt("b"))
    for_all = ScriptedPolicy(script(tmp_path, '{"a": ["one"], "*": ["other"]}'))
    assert for_all.lacking(map(TaskId, "abc")) == []


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.json", "", "s.json, line 1, column 1"),
        ("s.json", '{"a": ["x"],\n "b": [}', r"s.json, line 2, column 8"),
        ("s.json", '["x"]', "expected an object from task id"),
        ("s.json", "{}", "it has no answers"),
        ("s.json", '{"a": "x"}', "task 'a': expected a list of answers"),
        ("s.json", '{"a": []}', "task 'a': expected a list of answers"),
        ("s.json", '{"a": ["x", 1]}', "task 'a': expected a list of answers"),
        ("s.json", '{"a": ["x"], "a": ["y"]}', "'a' comes twice"),
        ("s.json", b'{"a":\n["\xff"]}', "line 2: not UTF-8 text"),
        ("s.json", "[" * 100_000, "nested too deeply"),
        ("s.jsonl", '{"task": "a", "answers": ["x"]}\n{"task": "a",', "s.jsonl, line 2, column"),
        ("s.jsonl", '\n{"task": "a"}', "s.jsonl, line 2: expected"),
        ("s.jsonl", '{"task": "a", "answers": ["x"], "weight": 1}', "s.jsonl, line 1: expected"),
        ("s.jsonl", '{"task": "a", "answers": ["x"]}\n' * 2, "line 2: task 'a' comes twice"),
        ("s.jsonl", b'{"task": "a", "answers": ["x"]}\n\xff\xfe', "line 2: not UTF-8 text"),
    ],
)
def test_what_is_no_script_is_explained(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        ScriptedPolicy(script(tmp_path, content, name))
    form = '{"task": "id or *"' if name.endswith(".jsonl") else '{"task id or *"'
    assert form in str(caught.value.fix)


@pytest.mark.parametrize(
    ("name", "message"),
    [("none", "No such file"), (".", "is not a file"), ("pipe", "is not a file")],
)
def test_a_missing_script_is_explained(tmp_path: Path, name: str, message: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match=message):
        ScriptedPolicy(tmp_path / name)


@pytest.mark.slow
async def test_an_answer_of_100_mb_is_kept_only_as_too_long(tmp_path: Path) -> None:
    content = b'{"*": ["```\\n' + b"x" * 100_000_000 + b'\\n```"]}'
    reply = await ScriptedPolicy(script(tmp_path, content)).respond(prompt("a"))
    assert reply.truncated
    assert len(reply.text) < 1_100_000
    assert "longer than 1000000 characters" in read_fenced("", reply.text).problem
