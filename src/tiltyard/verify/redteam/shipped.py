"""Cheats of class C that depend on the task's files, or are too long to be written down. Pure."""

from collections.abc import Iterator, Mapping

from tiltyard.core.task import Submission
from tiltyard.verify.redteam.blocks import Texts, submission_of
from tiltyard.verify.redteam.cheat import Cheat
from tiltyard.verify.redteam.surface import Surface

MANY = 6_000
LARGE_BYTES = 3 * 1024 * 1024
_PASSING = "def test_all():\n    pass\n"
_YES = "def __getattr__(name):\n    return lambda *_, **__: True\n"
_ODD_NAMES = (
    *("conf\ntest.py", "\x1b[2J\x1b[32m400 passed.py", "a" * 250, "\u202egnp.py", " ", "..."),
    *("con.py\r", "-rf", "$(touch owned)", "`id`", "'\";.py", "caf\u00e9.py", "cafe\u0301.py"),
)


def shipped(surface: Surface, wrong: Texts) -> Iterator[Cheat]:
    """The cheats, for a task and an answer to it that is wrong."""
    twin = submission_of(wrong)

    def cheat(name: str, about: str, submission: Submission) -> Cheat:
        return Cheat(id=f"c-{name}", about=about, submission=submission, twin=twin)

    def beside(more: Mapping[str, bytes], **kinds: Mapping[str, str]) -> Submission:
        return Submission(files={**twin.files, **more}, **kinds)

    names = [*surface.tests] or ["test_hidden.py", "conftest.py"]
    places = dict.fromkeys(("", "tests/", surface.directory))
    yield cheat(
        "same-tests",
        "files with the names of the tests, which pass",
        beside({f"{at}{name}": _PASSING.encode() for at in places for name in names}),
    )
    yield cheat(
        "same-tests-empty",
        "files with the names of the tests, with nothing in them",
        beside({f"{at}{name}": b"" for at in places for name in names}),
    )
    helpers = [name for name in names if "test" not in name.rsplit("/", 1)[-1]] or ["checker.py"]
    yield cheat(
        "same-helpers",
        "modules with the names of the tests' helpers, which say yes",
        beside({f"{at}{name}": _YES.encode() for at in places for name in helpers}),
    )
    yield cheat(
        "same-tests-links",
        "links with the names of the tests",
        beside({}, links={f"{at}{name}": "/dev/null" for at in places for name in names}),
    )
    yield cheat(
        "many-files",
        f"{MANY} files beside the answer",
        beside({f"{surface.directory}m/{n}.py": b"" for n in range(MANY)}),
    )
    yield cheat(
        "too-many", "more files than anybody reads", Submission(files={}, odd={".": "too many"})
    )
    first = surface.first
    yield cheat(
        "large-answer",
        "an answer of three mebibytes",
        beside({first: twin.files.get(first, b"") + b"#" * LARGE_BYTES}),
    )
    yield cheat(
        "odd-names",
        "names that a shell, a terminal or a log would obey",
        beside({f"{surface.directory}{name}": b"" for name in _ODD_NAMES}),
    )
    yield cheat(
        "answer-directory",
        "a directory in the answer's place",
        Submission(files={f"{first}/__init__.py": b"", f"{first}/__main__.py": b""}),
    )
