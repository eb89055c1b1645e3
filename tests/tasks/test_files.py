"""Task files: what is written comes back, and a hostile file is refused by file, line and field."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from tiltyard.core.checks import (
    Checks,
    Growth,
    Inputs,
    Leaks,
    Rubric,
    StateCheck,
    StateKind,
)
from tiltyard.core.errors import TaskError
from tiltyard.core.execution import Limits
from tiltyard.core.ids import TaskId
from tiltyard.core.task import CallCase, CallSuite, Compare, MethodCall, PytestSuite, Split, Task
from tiltyard.core.weights import Weights
from tiltyard.tasks import files
from tiltyard.tasks.files import read_tasks, task_line, write_tasks
from tiltyard.tasks.repair import TEMPLATES, make_task

ADD: dict[str, Any] = {
    "id": "add",
    "instruction": "Return the sum of a and b.",
    "reference": "def add(a, b):\n    return a + b\n",
    "visible": {"cases": [{"id": "v1", "target": "add", "args": "(1, 2)", "expected": "3"}]},
    "hidden": {"cases": [{"id": "h1", "target": "add", "args": "(2, 2)", "expected": "4"}]},
}


def write(tmp_path: Path, *lines: object) -> Path:
    """A task file of raw text lines and of objects."""
    path = tmp_path / "tasks.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_bytes("\n".join(texts).encode("utf-8", "surrogatepass"))
    return path


def changed(path: str, value: object) -> dict[str, Any]:
    """`ADD` with the field at a dotted path replaced."""
    record: dict[str, Any] = json.loads(json.dumps(ADD))
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = record
    for part in way:
        place = place[part]
    place[last] = value
    return record


def test_a_minimal_task_gets_the_defaults(tmp_path: Path) -> None:
    (task,) = read_tasks(write(tmp_path, "", ADD, "   "))
    assert task == Task(
        id=TaskId("add"),
        family="file",
        split=Split.HELDOUT,
        revision="1",
        instruction=ADD["instruction"],
        starter="",
        reference=ADD["reference"],
        visible=CallSuite(cases=(CallCase(id="v1", target="add", args=(1, 2), expected=3),)),
        hidden=CallSuite(cases=(CallCase(id="h1", target="add", args=(2, 2), expected=4),)),
    )


@pytest.mark.slow
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seeds=st.lists(st.integers(0, 10**9), min_size=1, max_size=5, unique=True))
def test_generated_tasks_come_back(tmp_path: Path, seeds: list[int]) -> None:
    tasks = [make_task(seed, split=Split.HELDOUT, families=tuple(TEMPLATES)) for seed in seeds]
    path = tmp_path / "generated.jsonl"
    assert write_tasks(path, tasks) == len(tasks)
    assert list(read_tasks(path)) == tasks


def test_every_field_comes_back(tmp_path: Path) -> None:
    task = Task(
        id=TaskId("all"),
        family="mine",
        split=Split.TRAIN,
        revision="7",
        instruction="Mach es gut: ü, \u2028 and a\nline.",
        module="queue_",
        starter="class Q: ...\n",
        reference="class Q:\n    def go(self, n): raise ValueError\n",
        visible=CallSuite(cases=(), float_tolerance=0.5),
        hidden=CallSuite(
            cases=(
                CallCase(
                    id="h1",
                    target="Q",
                    then=(MethodCall(name="go", args=(b"\xff", {1: {2.5}}, float("inf"))),),
                    raises="ValueError",
                ),
                CallCase(id="h2", target="Q", args=([1],), expected=None, arguments_kept=True),
            )
        ),
        limits=Limits(memory_bytes=64 * 2**20, pids=9, cpus=0.5),
        time_limit_s=2.5,
        provenance={"source": "hand"},
    )
    path = tmp_path / "all.jsonl"
    write_tasks(path, [task])
    assert read_tasks(path) == (task,)


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
IDS = st.from_regex(r"[a-z][a-z0-9.]{0,5}", fullmatch=True)
STATE = st.one_of(
    st.builds(
        StateCheck,
        id=IDS,
        kind=st.just(StateKind.FILE),
        weight=st.floats(0.1, 9),
        path=TEXTS,
        equals=st.none() | st.text(st.characters(codec="utf-8")),
        matches=st.none() | st.sampled_from(["^port = 80$", ""]),
        mode=st.none() | st.integers(0, 0o7777),
    ),
    st.builds(StateCheck, id=IDS, kind=st.just(StateKind.ABSENT), path=TEXTS),
    st.builds(
        StateCheck,
        id=IDS,
        kind=st.just(StateKind.HTTP),
        port=st.integers(1, 65_535),
        path=TEXTS,
        status=st.integers(100, 599),
    ),
    st.builds(
        StateCheck,
        id=IDS,
        kind=st.just(StateKind.SQL),
        path=TEXTS,
        query=TEXTS,
        rows=st.lists(st.lists(TEXTS, max_size=2).map(tuple), max_size=2).map(tuple),
    ),
)
CHECKS = st.builds(
    Checks,
    static=st.booleans(),
    types=st.booleans(),
    cost=st.booleans(),
    inputs=st.builds(Inputs, source=TEXTS, target=st.just("add"), fresh_cases=st.integers(0, 99)),
    growth=st.none() | st.builds(Growth, size_min=st.integers(1, 99), seconds_max=st.floats(1, 9)),
    leaks=st.none() | st.builds(Leaks, calls=st.integers(400, 999), size=st.integers(1, 9)),
    state=st.lists(STATE, max_size=3, unique_by=lambda each: each.id).map(tuple),
    rubric=st.none()
    | st.builds(Rubric, criteria=st.dictionaries(IDS, TEXTS, min_size=1, max_size=2)),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(CHECKS)
def test_checks_come_back(tmp_path: Path, checks: Checks) -> None:
    (task,) = read_tasks(write(tmp_path, ADD))
    path = tmp_path / "checked.jsonl"
    write_tasks(path, [dataclasses.replace(task, checks=checks)])
    (read,) = read_tasks(path)
    assert read.checks == checks


def test_checks_are_asked_for_as_in_a_task_directory(tmp_path: Path) -> None:
    asked = {
        "static": True,
        "growth": True,
        "inputs": {"source": "def generate(rng, size): ...", "target": "add", "fresh_cases": 5},
        "state": [{"id": "config", "kind": "file", "path": "/app/config", "mode": "0600"}],
    }
    (task,) = read_tasks(write(tmp_path, {**ADD, "checks": asked}))
    assert task.checks == Checks(
        static=True,
        growth=Growth(),
        inputs=Inputs(source="def generate(rng, size): ...", target="add", fresh_cases=5),
        state=(StateCheck(id="config", kind=StateKind.FILE, path="/app/config", mode=0o600),),
    )


@pytest.mark.parametrize("change", [{"weights": Weights(partial=True)}, {"baseline": 0.5}])
def test_what_has_no_place_in_a_line_is_not_left_out(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    (task,) = read_tasks(write(tmp_path, ADD))
    with pytest.raises(TaskError, match="its reward is made of"):
        task_line(dataclasses.replace(task, **change))


def test_pytest_suites_come_back(tmp_path: Path) -> None:
    record = {
        **ADD,
        "hidden": {"tests": {"test_a.py": "def test_a(): pass\n", "cases.py": "X = 1\n"}},
    }
    (task,) = read_tasks(write(tmp_path, record))
    assert isinstance(task.hidden, PytestSuite)
    assert dict(task.hidden.files) == record["hidden"]["tests"]
    assert json.loads(task_line(task))["hidden"] == record["hidden"]


CASE = "hidden.cases.0"


def brief(text: str) -> str:
    """A test's name for a parameter that may be huge."""
    return text[:30]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("id", "../etc/passwd", "field id: must be 1 to 200 letters"),
        ("id", "", "field id: must be"),
        ("id", 7, "field id: must be a text"),
        ("family", "a b", "field family: must be"),
        ("split", "test", "field split: must be 'train' or 'heldout'"),
        ("instruction", "", "field instruction: must not be empty"),
        ("module", "os.path", "field module: must be a Python name"),
        ("module", "class", "field module: must be a Python name"),
        ("reference", "", "field reference: must not be empty"),
        ("reference", "\ud800", "not UTF-8|valid Unicode"),
        ("starter", None, "field starter: must be a text"),
        ("surprise", 1, "field surprise: is no field of the format"),
        ("checks", {"styles": True}, "field checks.styles: is no field of the format"),
        ("checks", {"cost": True}, "the task asks for checks that it cannot have: needs 'inputs'"),
        ("checks", {"inputs": {"file": "a.py", "target": "add"}}, "give the program itself"),
        ("checks", {"inputs": {"target": "add"}}, "field checks.inputs: needs exactly one of"),
        ("checks", {"state": [{"id": "a", "kind": "port"}]}, "checks.state.0: needs the field"),
        ("hidden", {"cases": []}, "the task has no hidden case"),
        ("hidden", {}, "field hidden.cases: is missing"),
        ("hidden", [], "field hidden: must be an object"),
        ("hidden", {"tests": {}}, "field hidden.tests: must not be empty"),
        ("hidden", {"tests": {"test_a.py": ""}, "cases": []}, "field hidden.cases: is no field"),
        ("hidden", {"tests": {"a.py": ""}}, "field hidden: has no test_"),
        ("hidden", {"tests": {"../test_a.py": ""}}, "field hidden: has the file name"),
        ("hidden", {"tests": {"test_a.py": "", "solution.py": ""}}, "named like its module"),
        (f"{CASE}.args", "(1, 2", "field hidden.cases.0.args: not a Python literal"),
        (f"{CASE}.args", "1", "field hidden.cases.0.args: must be a tuple"),
        (f"{CASE}.args", [1, 2], "field hidden.cases.0.args: must be a text"),
        (f"{CASE}.expected", "open('x')", "field hidden.cases.0.expected: holds a Call"),
        (f"{CASE}.expected", "[" * 60 + "]" * 60, "nested deeper"),
        (f"{CASE}.expected", None, "field hidden.cases.0: needs exactly one"),
        (f"{CASE}.raises", "ValueError", "field hidden.cases.0: needs exactly one"),
        (f"{CASE}.raises", "SystemExit", "must be the name of a builtin exception"),
        (f"{CASE}.target", "a-b", "field hidden.cases.0.target: must be a Python name"),
        (f"{CASE}.then", [{"name": "go", "how": 1}], "hidden.cases.0.then.0.how: is no field"),
        (f"{CASE}.arguments_kept", "yes", "arguments_kept: must be true or false"),
        ("hidden.cases", [ADD["hidden"]["cases"][0]] * 2, "has the case id 'h1' twice"),
        ("hidden.float_tolerance", 2, "field hidden.float_tolerance: must be less"),
        ("time_limit_s", 0, "field time_limit_s: must be greater than 0"),
        ("time_limit_s", 1e9, "field time_limit_s: must be less than"),
        ("limits", {"pids": 0}, "field limits.pids: must be greater"),
        ("limits", {"memory_bytes": 2**60}, "field limits.memory_bytes: must be less"),
        ("provenance", {"a": 1}, "field provenance.a: must be a text"),
    ],
)
def test_a_wrong_field_is_named_with_file_and_line(
    tmp_path: Path, path: str, value: object, message: str
) -> None:
    file = write(tmp_path, changed("id", "fine"), changed(path, value))
    with pytest.raises(TaskError, match=message) as caught:
        read_tasks(file)
    assert str(caught.value).startswith(f"{file}:2: ")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at column 2\\."),
        ("[1]", "not a JSON object"),
        ("null", "not a JSON object"),
        ('"text"', "not a JSON object"),
        ("[" * 100_000, "nested too deeply"),
        ('{"id": ' * 100_000, "nested too deeply"),
        ('{"id": "a", "id": "b"}', "the key 'id' is given twice"),
        ('{"time_limit_s": NaN}', "NaN is no JSON number"),
        ('{"time_limit_s": -Infinity}', "Infinity is no JSON number"),
        ('{"time_limit_s": ' + "9" * 5_000 + "}", "not JSON"),
        ("{}", "field id: is missing"),
        ('{"id": "\udc80"}', "is not UTF-8"),
        ("\ufeff{}", "not JSON"),
        ("\0", "not JSON"),
    ],
    ids=brief,
)
def test_a_line_that_is_no_task_is_refused(tmp_path: Path, line: str, message: str) -> None:
    path = write(tmp_path, ADD, line)
    with pytest.raises(TaskError, match=message) as caught:
        read_tasks(path)
    assert str(caught.value).startswith(f"{path}:2: ")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(content=st.binary(max_size=200))
def test_any_bytes_are_a_task_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bytes.jsonl"
    path.write_bytes(content)
    with pytest.raises(TaskError):
        read_tasks(path)


def test_an_id_is_used_once(tmp_path: Path) -> None:
    path = write(tmp_path, ADD, ADD)
    with pytest.raises(TaskError, match=r"tasks\.jsonl:2: field id: 'add' was used.*Fix: Give"):
        read_tasks(path)


def test_a_long_line_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = write(tmp_path, ADD, '{"id": "' + "x" * files.LINE_BYTES_MAX)
    with pytest.raises(TaskError, match=r":2: the line is longer than 4194304 bytes\. Fix: Spread"):
        read_tasks(path)


@pytest.mark.slow
def test_a_large_file_is_refused_without_reading_on(tmp_path: Path) -> None:
    path = tmp_path / "large.jsonl"
    line = b" " * (files.LINE_BYTES_MAX - 1) + b"\n"
    with path.open("wb") as stream:
        for _ in range(files.FILE_BYTES_MAX // len(line) + 1):
            stream.write(line)
    with pytest.raises(TaskError, match="the file is larger than"):
        read_tasks(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    for path, message in (
        (tmp_path / "missing.jsonl", "is not a file"),
        (tmp_path, "is not a file"),
        (pipe, "is not a file"),
        (empty, "holds no task"),
    ):
        with pytest.raises(TaskError, match=message):
            read_tasks(path)


def test_a_task_without_a_place_in_the_format_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    path.write_text("as it was")
    good = make_task(0, split=Split.TRAIN)
    case = CallCase(id="h1", target="f", expected=object())  # type: ignore[arg-type]
    for bad, message in (
        (dataclasses.replace(good, id=TaskId("a/b")), "'a/b': field id: must be"),
        (dataclasses.replace(good, hidden=CallSuite(cases=())), "has no hidden case"),
        (dataclasses.replace(good, hidden=CallSuite(cases=(case,))), "a value holds a object"),
    ):
        with pytest.raises(TaskError, match=message):
            write_tasks(path, [good, bad])
    assert path.read_text() == "as it was"
    with pytest.raises(TaskError, match="cannot be written"):
        write_tasks(tmp_path / "no" / "such.jsonl", [good])


def test_how_a_suite_compares_comes_back(tmp_path: Path) -> None:
    case = CallCase(id="h1", target="f", expected=[1, 2], compare=Compare.UNORDERED, weight=2.5)
    (base,) = read_tasks(write(tmp_path, ADD))
    for hidden in (
        CallSuite(cases=(case,)),
        PytestSuite(files={"test_a.py": "def test_a(): pass\n"}, inplace=True),
    ):
        task = dataclasses.replace(base, hidden=hidden)
        assert list(read_tasks(write(tmp_path, task_line(task)))) == [task]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("compare", "sorted"),
        ("compare", "any_of"),
        ("compare", "unordered"),
        ("weight", 0.0),
        ("weight", -1.0),
        ("weight", "2"),
    ],
)
def test_a_comparison_that_is_none_is_refused(tmp_path: Path, field: str, value: object) -> None:
    """`ADD` expects a number, of which there is no other order and no member."""
    with pytest.raises(TaskError):
        list(read_tasks(write(tmp_path, changed(f"hidden.cases.0.{field}", value))))
