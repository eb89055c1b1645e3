"""What of a submission is laid over a project, and what in it is called tampering."""

from dataclasses import replace

import pytest

from tiltyard.core.errors import GraderError
from tiltyard.core.task import RepositorySuite, Submission
from tiltyard.verify.overlay import tree as module
from tiltyard.verify.overlay.tree import names_the_runner, reference_tree, tree_of
from verify.repositories import PROJECT, SUITE, left

WHOLE = {**PROJECT.base, **PROJECT.reference}


def test_sources_are_laid_over_the_project_and_tests_come_from_the_task() -> None:
    mine = {"src/yard/text.py": b"mine", "src/yard/new.py": b"new", "notes.md": b"x"}
    tree = tree_of(PROJECT, left({**mine, "tests/test_mine.py": b"def test_x(): pass"}))
    assert (tree.problem, tree.tamper) == ("", ())
    assert tree.files["src/yard/text.py"] == b"mine"
    assert tree.files["src/yard/new.py"] == b"new"
    assert tree.files["src/yard/numbers.py"] == PROJECT.base["src/yard/numbers.py"], "kept"
    assert tree.files["tests/test_text.py"] == PROJECT.tests["test_text.py"]
    assert not {"notes.md", "tests/test_mine.py"} & tree.files.keys()


def test_what_an_honest_agent_leaves_behind_is_no_sign() -> None:
    files = {
        **WHOLE,
        "tests/test_text.py": PROJECT.tests["test_text.py"],
        "tests/test_more.py": b"import pytest\n",
        "src/yard/test_inside.py": b"import pytest\nx = 'pytest'\n",
        "src/yard/__pycache__/text.cpython-311.pyc": b"\0",
        ".pytest_cache/v/cache/lastfailed": b"{}",
        ".git/hooks/pre-commit.sample": b"#!/bin/sh\n",
        "__pycache__/gone.cpython-311.pyc": b"\xa7\r\r\n" + bytes(4) + b"time" + b"size" + b"code",
        ".venv/lib/python3.11/site-packages/x.pth": b"import os",
        "src/node_modules/gyp/conftest.py": b"x",
        "scratch.py": b"import pytest\n",
    }
    links = {
        ".venv/bin/python": "/usr/bin/python3",
        "runs/latest": "1",
        "src/yard/.#text.py": "me@host.1:2",
        "src/node_modules/.bin/x": "../x",
    }
    odd = {"a.sock": "socket", "core": "too large", ".git/objects/x": "hard link"}
    tree = tree_of(PROJECT, Submission(files=files, links=links, odd=odd))
    assert (tree.problem, tree.tamper) == ("", ())
    assert tree.files.keys() == reference_tree(PROJECT).keys()


def test_a_directory_that_the_task_declares_is_no_tools_own() -> None:
    suite = replace(PROJECT, sources=("src/**", "node_modules/**"))
    tree = tree_of(suite, left({**WHOLE, "node_modules/a.js": b"x", "src/venv/a.py": b"x"}))
    assert "node_modules/a.js" in tree.files
    assert "src/venv/a.py" not in tree.files
    based = replace(PROJECT, base={**PROJECT.base, "src/venv/a.py": b"old"})
    assert tree_of(based, left({"src/venv/a.py": b"new"})).files["src/venv/a.py"] == b"new"


@pytest.mark.parametrize(
    "path",
    [
        *("conftest.py", "src/conftest.py", "src/yard/conftest.py", "pytest.ini", "tox.ini"),
        *("setup.cfg", "pyproject.toml", "x.pth", "sitecustomize.py", "src/usercustomize.py"),
        *("__pycache__/gone.cpython-311.pyc", "src/yard/text.pyc", "pytest.py", "src/pytest.py"),
        *("_pytest/__init__.py", "src/json/__init__.py", "dataclasses.py", "test_text.py"),
        *("src/test_text.py", "tests/conftest.py", "tests/deep/test_numbers.py"),
        *("tests/tool.py", "src/yard/__init__.py", ".git/hooks/pre-commit"),
    ],
)
def test_what_reaches_for_the_tests_is_named_and_not_taken(path: str) -> None:
    tree = tree_of(PROJECT, left({**WHOLE, path: b"mine"}))
    assert tree.problem == ""
    (sign,) = tree.tamper
    assert path in sign
    assert tree.files == reference_tree(PROJECT)


def test_a_module_of_the_projects_own_may_have_any_name() -> None:
    suite = replace(PROJECT, base={**PROJECT.base, "src/json/__init__.py": b"old"})
    tree = tree_of(suite, left({"src/json/__init__.py": b"new"}))
    assert tree.tamper == ()
    assert tree.files["src/json/__init__.py"] == b"new"


def test_links_and_odd_things() -> None:
    links = dict.fromkeys(("d", "src", "tests", "conftest.py", ".git/hooks/post-checkout"), "/etc")
    tree = tree_of(PROJECT, Submission(files=WHOLE, links=links, odd={"pipe": "fifo"}))
    assert tree.tamper == (
        "ships a link: .git/hooks/post-checkout",
        "ships a link: conftest.py",
        "ships a link: src",
        "ships a link: tests",
        "ships something odd (fifo): pipe",
    )
    assert tree.problem == ""
    for bad in (
        Submission(files=WHOLE, links={"src/yard/more.py": "/hidden"}),
        Submission(files=WHOLE, odd={"src/yard/more.py": "fifo"}),
        Submission(files=WHOLE, odd={"src": "too many"}),
    ):
        assert tree_of(PROJECT, bad).problem.startswith("unsafe artifact")


@pytest.mark.parametrize(
    "files",
    [
        {"src/../../x.py": b"x"},
        {"src//x.py": b"x"},
        {"src/./x.py": b"x"},
        {"src/\0.py": b"x"},
        {"src/\ud800.py": b"x"},
        {"src/" + "x" * 300: b"x"},
        {"src/yard/text.py/x.py": b"x"},
        {"src/a": b"x", "src/a/b": b"x"},
        {f"src/{n}.py": b"" for n in range(module.FILES_MAX + 1)},
        {"src/large.py": b"x" * (module.BYTES_MAX + 1)},
        {"src/large.py": b"x" * module.BYTES_MAX},
    ],
    ids=range(11),
)
def test_what_no_tree_takes_is_the_agents_fault(files: dict[str, bytes]) -> None:
    tree = tree_of(PROJECT, left(files))
    assert tree.problem.isprintable()
    assert len(tree.problem) > 10
    assert tree.files == {}


def test_without_any_source() -> None:
    assert tree_of(SUITE, left({"notes.md": b"x"})).problem.startswith("there is no file that")
    assert tree_of(PROJECT, left({})).problem == "", "the project has its own"


def test_a_project_that_is_too_large_is_the_tasks_fault() -> None:
    large = RepositorySuite(
        base={"src/x": b"x" * module.BYTES_MAX}, tests={"t": b"x"}, reference={}, sources=("**",)
    )
    with pytest.raises(GraderError, match="more than overlay mode takes"):
        reference_tree(large)
    with pytest.raises(GraderError, match="cannot be laid down"):
        reference_tree(replace(large, base={"../x": b""}))


def test_many_signs_are_cut() -> None:
    many = {f"d{n}/conftest.py": b"x" for n in range(200)}
    tamper = tree_of(PROJECT, left({**WHOLE, **many})).tamper
    assert len(tamper) == module.SIGNS_MAX + 1
    assert tamper[-1] == "and 150 more"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (b"import _pytest.python", True),
        (b"from _pytest import runner", True),
        (b"import sys\nG = 'pytest' in sys.modules", True),
        (b"x = sys.modules['_pytest.runner']", True),
        (b"os.environ.get('PYTEST_CURRENT_TEST')", True),
        (b"import pluggy", True),
        (b"import pytest\npytest.main()", False),
        (b"# pytest\nx = 1", False),
        (b"'''Run it with pytest -q.'''", False),
        (b"x = 'pytest' in (", True),
        (b"\xff\xfepytest", False),
        (b"'pytest" + b"(" * 1000, False),
    ],
)
def test_who_speaks_of_the_test_runner(source: bytes, expected: bool) -> None:
    assert names_the_runner(source) is expected
    tree = tree_of(SUITE, left({"solution.py": source}))
    assert tree.tamper == (("speaks of the test runner: solution.py",) if expected else ())
    own = replace(SUITE, reference={"solution.py": b"import _pytest"})
    assert tree_of(own, left({"solution.py": source})).tamper == ()
