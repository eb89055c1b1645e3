"""Task directories: each mode becomes its suite, and what is wrong is named by file and field."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tasks.directories import FUNCTION, PROGRAM, REPOSITORY, SCRIPT, lay
from tiltyard.core.checks import Checks, Growth, Inputs, Leaks, Rubric, StateCheck, StateKind
from tiltyard.core.errors import TaskError
from tiltyard.core.task import (
    CompareOutput,
    ProgramCase,
    ProgramSuite,
    PytestSuite,
    RepositorySuite,
    ScriptSuite,
)
from tiltyard.core.weights import ComponentWeight, Unresolved, Weights
from tiltyard.tasks.catalog import load_function_tasks, load_tasks
from tiltyard.tasks.directory import read_directory

VERIFY = '[tiltyard.verify]\nmode = "split"\n'
PROGRAMS = VERIFY + 'kind = "program"\n'


def test_a_function_task(tmp_path: Path) -> None:
    path = lay(tmp_path / "add-1", FUNCTION, {"environment/solution.py": "# start\n"})
    task = read_directory(path)
    assert isinstance(task.hidden, PytestSuite)
    assert dict(task.hidden.files) == {
        "test_hidden.py": FUNCTION["tests/test_hidden.py"],
        "checker.py": FUNCTION["tests/checker.py"],
    }
    assert (task.id, task.module, task.time_limit_s) == ("add-1", "solution", 5.0)
    assert task.reference == FUNCTION["solution/solution.py"]
    assert task.starter == "# start\n"
    assert task.instruction == FUNCTION["instruction.md"]


def test_a_module_of_another_name_and_files_that_are_no_part_of_the_tests(tmp_path: Path) -> None:
    path = lay(
        tmp_path,
        FUNCTION,
        {
            "task.toml": VERIFY + 'module = "sums"\n[verifier]\ntimeout_sec = 7\n',
            "tests/test.sh": "pytest",
            "tests/Dockerfile": "FROM x",
            "tests/conftest.py": "",
            "tests/__pycache__/test_hidden.pyc": b"\xff",
            "tests/.pytest_cache/x": b"\xff",
            "solution/sums.py": "y = 1\n",
            "environment/large.bin": b"\xff",
        },
    )
    task = read_directory(path)
    assert isinstance(task.hidden, PytestSuite)
    assert set(task.hidden.files) == {"test_hidden.py", "checker.py", "conftest.py"}
    assert (task.reference, task.time_limit_s) == ("y = 1\n", 7.0)


def test_a_task_of_programs(tmp_path: Path) -> None:
    task = read_directory(lay(tmp_path, PROGRAM))
    assert task.hidden == ProgramSuite(
        source="solution.py",
        run=("python3", "solution.py"),
        cases=(
            ProgramCase(id="deep/two", arguments=("--base", "a b"), expected=b"0\n"),
            ProgramCase(id="one", stdin=b"1 2\n", expected=b"3\n"),
        ),
    )
    assert task.reference == PROGRAM["solution/solution.py"]


def test_a_compiled_program_with_a_checker(tmp_path: Path) -> None:
    fields = (
        'source = "main.c"\nbuild = "cc -o main main.c"\nrun = ["./main"]\n'
        'checker = "check.py"\nfloat_tolerance = 0.5\ntime_limit_s = 3\n'
    )
    path = lay(
        tmp_path,
        PROGRAM,
        {
            "task.toml": PROGRAMS + fields,
            "tests/check.py": "exit(0)\n",
            "solution/main.c": "int main;\n",
        },
    )
    task = read_directory(path)
    suite = task.hidden
    assert isinstance(suite, ProgramSuite)
    assert (suite.source, suite.build, suite.run) == (
        "main.c",
        ("cc", "-o", "main", "main.c"),
        ("./main",),
    )
    assert (suite.compare, suite.checker) == (CompareOutput.CHECKER, "exit(0)\n")
    assert (suite.float_tolerance, task.time_limit_s) == (0.5, 3.0)
    assert task.reference == "int main;\n"


def test_a_repository_task(tmp_path: Path) -> None:
    task = read_directory(lay(tmp_path, REPOSITORY))
    assert task.hidden == RepositorySuite(
        base={"src/p/__init__.py": b"x = 0\n", "src/p/Dockerfile": b"kept\n"},
        tests={"test_p.py": REPOSITORY["tests/test_p.py"].encode()},
        reference={"src/p/__init__.py": b"x = 1\n"},
        sources=("src/**", "setup.py"),
        protected=("src/vendored/**",),
    )
    assert task.time_limit_s == 90.0


def test_a_base_of_its_own(tmp_path: Path) -> None:
    toml = REPOSITORY["task.toml"] + 'base = "environment/src"\n'
    task = read_directory(lay(tmp_path, REPOSITORY, {"task.toml": toml}))
    assert isinstance(task.hidden, RepositorySuite)
    assert set(task.hidden.base) == {"p/__init__.py", "p/Dockerfile"}


@pytest.mark.parametrize("toml", ["", '[tiltyard.verify]\nmode = "script"\n'])
def test_a_plain_task_of_harbor(tmp_path: Path, toml: str) -> None:
    path = lay(tmp_path, SCRIPT, {"task.toml": SCRIPT["task.toml"] + toml})
    task = read_directory(path)
    assert task.hidden == ScriptSuite(
        tests={"test.sh": SCRIPT["tests/test.sh"].encode()},
        reference={},
        solve=SCRIPT["solution/solve.sh"].encode(),
        base={"given.txt": b"given\n"},
        artifacts=("out.txt", "out.txt/**", "made", "made/**"),
        workdir="/app",
    )
    assert (task.id, task.time_limit_s) == ("some:words-here", 120.0)
    assert task.provenance["name"] == "some/words here"


def test_leaks_of_a_program(tmp_path: Path) -> None:
    path = lay(tmp_path, PROGRAM, measured(PROGRAM, "leaks = true"))
    assert read_directory(path).checks == Checks(leaks=Leaks())


def test_every_check(tmp_path: Path) -> None:
    toml = """
[tiltyard.checks]
static = true
types = true
cost = true
inputs = { file = "inputs.py", target = "add", fresh_cases = 5 }
growth = true
leaks = { calls = 500 }
rubric = { clear = "Is it clear?" }
[[tiltyard.checks.state]]
id = "made"
kind = "file"
path = "/app/x"
mode = "0600"
[[tiltyard.checks.state]]
id = "rows"
kind = "sql"
path = "/app/db"
query = "select 1"
rows = [["1"]]
weight = 2
"""
    path = lay(tmp_path, FUNCTION, {"task.toml": VERIFY + toml, "tests/inputs.py": "def g(): 0\n"})
    assert read_directory(path).checks == Checks(
        static=True,
        types=True,
        cost=True,
        inputs=Inputs(source="def g(): 0\n", target="add", fresh_cases=5),
        growth=Growth(),
        leaks=Leaks(calls=500),
        state=(
            StateCheck(id="made", kind=StateKind.FILE, path="/app/x", mode=0o600),
            StateCheck(
                id="rows",
                kind=StateKind.SQL,
                path="/app/db",
                query="select 1",
                rows=(("1",),),
                weight=2.0,
            ),
        ),
        rubric=Rubric(criteria={"clear": "Is it clear?"}),
    )


def test_the_checks_of_a_program(tmp_path: Path) -> None:
    asked = 'cost = true\ninputs = { file = "tests/i.py", fresh_cases = 3 }\ngrowth = true'
    path = lay(tmp_path, PROGRAM, measured(PROGRAM, asked), {"tests/i.py": "def g(): 0\n"})
    assert read_directory(path).checks == Checks(
        cost=True, inputs=Inputs(source="def g(): 0\n", fresh_cases=3), growth=Growth()
    )
    path = lay(tmp_path / "cost", PROGRAM, measured(PROGRAM, "cost = true"))
    assert read_directory(path).checks == Checks(cost=True)


def test_what_its_reward_is_made_of(tmp_path: Path) -> None:
    toml = """
inplace = true
baseline = 0.25
[tiltyard.reward]
quantum = 0.5
tests.partial = true
components.style = { weight = 2.0, unresolved = "zero" }
"""
    task = read_directory(lay(tmp_path, FUNCTION, {"task.toml": VERIFY + toml}))
    assert isinstance(task.hidden, PytestSuite)
    assert task.hidden.inplace
    assert task.baseline == 0.25
    style = ComponentWeight(weight=2.0, unresolved=Unresolved.ZERO)
    assert task.weights == Weights(partial=True, quantum=0.5, components={"style": style})
    assert read_directory(lay(tmp_path, FUNCTION)).weights is None


def test_the_revision_follows_the_content(tmp_path: Path) -> None:
    one = read_directory(lay(tmp_path / "one", FUNCTION)).revision
    again = read_directory(lay(tmp_path / "two", FUNCTION)).revision
    other = read_directory(lay(tmp_path / "three", FUNCTION, {"tests/checker.py": "x"})).revision
    assert one == again != other


def checks(text: str) -> Mapping[str, str]:
    return {"task.toml": VERIFY + "[tiltyard.checks]\n" + text}


def measured(
    task: Mapping[str, str], asked: str = 'inputs = { file = "i.py", target = "f" }'
) -> Mapping[str, str]:
    return {"task.toml": f"{task['task.toml']}\n[tiltyard.checks]\n{asked}\n"}


def verify(text: str) -> Mapping[str, str]:
    return {"task.toml": "[tiltyard.verify]\n" + text}


@pytest.mark.parametrize(
    ("files", "changes", "said"),
    [
        (FUNCTION, {"task.toml": None}, "task.toml"),
        (FUNCTION, {"instruction.md": b"\xff"}, "instruction.md: byte 1 is not UTF-8"),
        (FUNCTION, {"task.toml": "x = ="}, "task.toml: not TOML"),
        (FUNCTION, {"task.toml": "x = " + "[" * 100_000}, "task.toml: not TOML"),
        (FUNCTION, {"task.toml": ""}, "field tiltyard.verify: is missing"),
        (FUNCTION, verify(""), "field tiltyard.verify.mode: is missing"),
        (FUNCTION, verify('mode = "other"'), "field tiltyard.verify.mode: must be 'split'"),
        (FUNCTION, verify('mode = "split"\nmodul = "x"'), "verify.modul: is no field"),
        (FUNCTION, verify('mode = "split"\nmodule = "a-b"'), "verify.module: must be a Python"),
        (FUNCTION, verify('mode = "split"\nsources = ["a"]'), "has the field 'sources', which"),
        (FUNCTION, verify('mode = "split"\nfloat_tolerance = 0.1'), "'float_tolerance', which"),
        (FUNCTION, verify('mode = "split"\ntime_limit_s = nan'), "verify.time_limit_s: must be"),
        (FUNCTION, verify('mode = "split"\ntime_limit_s = 0'), "verify.time_limit_s: must be"),
        (FUNCTION, {"task.toml": VERIFY + "[tiltyard.other]\n"}, "tiltyard.other: is no field"),
        (FUNCTION, {"task.toml": VERIFY + "[verifier]\ntimeout_sec = 4000"}, "verifier.timeout_s"),
        (FUNCTION, {"task.toml": VERIFY + '[verifier]\ntimeout_sec = "x"'}, "verifier.timeout_s"),
        (FUNCTION, {"task.toml": "steps = [{}]\n" + VERIFY}, "has several steps"),
        (FUNCTION, {"solution/solution.py": None}, "solution/solution.py is missing"),
        (FUNCTION, {"solution/solution.py": b"\xff"}, "solution/solution.py: byte 1"),
        (FUNCTION, {"tests/test_hidden.py": None}, "tests holds no tests"),
        (FUNCTION, {"tests/solution.py": "x"}, "tests/solution.py has the name of"),
        (FUNCTION, {"tests/image.png": b"\xff"}, "tests/image.png: byte 1 is not UTF-8"),
        (FUNCTION, checks("stati = true"), "tiltyard.checks.stati: is no field"),
        (FUNCTION, checks("growth = true"), "needs 'inputs'"),
        (FUNCTION, checks("cost = true"), "needs 'inputs'"),
        (FUNCTION, checks('inputs = { file = "i.py" }'), "inputs.target: is missing"),
        (PROGRAM, measured(PROGRAM), "inputs.target: a program has none"),
        (PROGRAM, measured(PROGRAM, 'inputs = { file = "i.py" }'), "tests/i.py is missing"),
        (PROGRAM, measured(PROGRAM, "growth = true"), "needs 'inputs'"),
        (REPOSITORY, measured(REPOSITORY), "for functions and programs only"),
        (SCRIPT, measured(SCRIPT), "for functions and programs only"),
        (FUNCTION, checks("leaks = true"), "needs 'inputs'"),
        (
            PROGRAM,
            measured(PROGRAM, "leaks = { calls = 500 }"),
            "fields are for functions only",
        ),
        (SCRIPT, measured(SCRIPT, "leaks = true"), "for functions and programs only"),
        (FUNCTION, {"task.toml": VERIFY + "baseline = 1.0"}, "verify.baseline: "),
        (PROGRAM, {"task.toml": PROGRAMS + "inplace = true"}, "'inplace', which mode"),
        (FUNCTION, {"task.toml": VERIFY + "[tiltyard.reward]\ntest = 1"}, "tiltyard.reward.test: "),
        (
            FUNCTION,
            {"task.toml": VERIFY + "[tiltyard.reward]\ntests.weight = 0"},
            "all weights are zero",
        ),
        (FUNCTION, checks('inputs = { file = "i.py", target = "f" }'), "tests/i.py is missing"),
        (FUNCTION, checks('inputs = { file = "../i", target = "f" }'), "checks.inputs.file: must"),
        (FUNCTION, checks('state = [{ id = "a", kind = "file" }]'), "state.0: needs the field"),
        (FUNCTION, checks('state = [{ id = "a", kind = "port", path = "x", port = 1 }]'), "'path'"),
        (
            FUNCTION,
            checks('state = [{ id = "a", kind = "process", matches = "(" }]'),
            "state.0.matches: must be a regular expression",
        ),
        (PROGRAM, {"tests/one.out": None}, "tests/one.in has no one.out beside it"),
        (PROGRAM, {"tests/deep/two.args": "'"}, "deep/two.args: not words as a shell"),
        (PROGRAM, {"task.toml": PROGRAMS + 'source = "m.c"'}, "verify.run: is missing"),
        (PROGRAM, {"task.toml": PROGRAMS + 'compare = "checker"'}, "names none in 'checker'"),
        (PROGRAM, {"task.toml": PROGRAMS + 'checker = "c.py"'}, "tests/c.py is missing"),
        (
            PROGRAM,
            {"tests/one.out": None, "tests/one.in": None, "tests/deep/two.out": None}
            | {"tests/deep/two.args": None},
            "tests holds no cases",
        ),
        (REPOSITORY, verify('mode = "overlay"'), "needs 'sources'"),
        (REPOSITORY, verify('mode = "overlay"\nsources = ["../x"]'), "verify.sources.0: must be"),
        (REPOSITORY, verify('mode = "overlay"\nsources = ["x"]\nbase = "no"'), "no is missing"),
        (REPOSITORY, {"solution/src/p/__init__.py": None}, "holds no files but solve.sh"),
        (REPOSITORY, {"tests/test_p.py": None}, "tests holds no tests"),
        (SCRIPT, {"task.toml": 'artifacts = ["/etc/x"]'}, "field artifacts: '/etc/x' is not"),
        (SCRIPT, {"tests/test.sh": None}, "there is no tests/test.sh"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path,
    files: Mapping[str, str],
    changes: Mapping[str, str | bytes | None],
    said: str,
) -> None:
    path = lay(tmp_path / "task", files, changes)
    with pytest.raises(TaskError) as raised:
        read_directory(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_link_stands_for_a_file_beside_it_and_never_for_one_outside(tmp_path: Path) -> None:
    path = lay(tmp_path / "task", FUNCTION)
    (path / "tests" / "sub").mkdir()
    (path / "tests" / "one.py").symlink_to("sub/two.py")
    (path / "tests" / "sub" / "two.py").symlink_to("../checker.py")
    suite = read_directory(path).hidden
    assert isinstance(suite, PytestSuite)
    assert suite.files["one.py"] == suite.files["checker.py"]

    for target in ("/etc/passwd", "../task.toml", "../../x", "bad.py", "sub", "nowhere"):
        (path / "tests" / "bad.py").symlink_to(target)
        with pytest.raises(TaskError, match=r"tests/bad.py is a link that leads to no file beside"):
            read_directory(path)
        (path / "tests" / "bad.py").unlink()


@pytest.mark.parametrize("name", ["task.toml", "tests", "solution"])
def test_no_part_of_a_task_is_a_link_out_of_it(tmp_path: Path, name: str) -> None:
    path = lay(tmp_path / "task", FUNCTION)
    (path / name).rename(tmp_path / "moved")
    (path / name).symlink_to(tmp_path / "moved")
    with pytest.raises(TaskError, match="a link or no"):
        read_directory(path)


def test_what_is_no_file_is_refused_and_not_opened(tmp_path: Path) -> None:
    path = lay(tmp_path / "task", FUNCTION)
    os.mkfifo(path / "tests" / "pipe")
    with pytest.raises(TaskError, match="tests/pipe cannot be part of a task: fifo"):
        read_directory(path)


def test_a_directory_of_tasks_is_read_by_name(tmp_path: Path) -> None:
    lay(tmp_path / "b", FUNCTION)
    lay(tmp_path / "a", PROGRAM)
    lay(tmp_path / "notes", {"x": ""})
    assert [task.id for task in load_tasks(str(tmp_path))] == ["a", "b"]
    assert len(load_function_tasks(str(tmp_path))) == 2

    lay(tmp_path / "c", FUNCTION, {"task.toml": '[tiltyard]\nid = "a"\n' + VERIFY})
    with pytest.raises(TaskError, match="c: the id 'a' is that of another task"):
        load_tasks(str(tmp_path))


@pytest.mark.parametrize(
    "files",
    [
        REPOSITORY,
        SCRIPT,
        {**PROGRAM, "task.toml": PROGRAMS + 'source = "a.c"\nrun = "./a"', "solution/a.c": "x"},
    ],
)
def test_a_rollout_refuses_what_it_cannot_answer(tmp_path: Path, files: Mapping[str, str]) -> None:
    lay(tmp_path / "task", files)
    with pytest.raises(TaskError, match="not one Python module"):
        load_function_tasks(str(tmp_path / "task"))


@pytest.mark.parametrize("instruction", [None, " \n"])
def test_a_task_that_asks_for_nothing_judges_and_is_no_rollout(
    tmp_path: Path, instruction: str | None
) -> None:
    lay(tmp_path / "task", FUNCTION, {"instruction.md": instruction})
    assert not read_directory(tmp_path / "task").instruction.strip()
    with pytest.raises(TaskError, match=r"asks for nothing. Fix: Write its instruction.md"):
        load_function_tasks(str(tmp_path / "task"))


def test_a_directory_without_a_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"is no task: it has no task.toml"):
        load_tasks(str(tmp_path))
