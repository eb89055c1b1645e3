"""What is taken of a submission, and what in it is called tampering."""

import pytest

from tiltyard.core.task import Odd, Submission
from tiltyard.core.verdict import Check, CheckStatus, Outcome, Verdict
from tiltyard.verify.reward import reward_of
from tiltyard.verify.submission import SOURCE_BYTES_MAX, take, whole_problem
from verify.tasks import TESTS, answer, task


def test_only_the_declared_file_is_taken() -> None:
    taken = take(task(), answer("x = 1", notes__txt="y", helper__py="z"))
    assert (taken.source, taken.problem, taken.tamper) == (b"x = 1", "", ())


@pytest.mark.parametrize(
    ("submission", "problem"),
    [
        (Submission(files={}), "there is no solution.py"),
        (Submission(files={"Solution.py": b"x"}), "there is no solution.py"),
        (Submission(files={"a/solution.py": b"x"}), "there is no solution.py"),
        (
            Submission(files={}, links={"solution.py": "/hidden/reference.py"}),
            "unsafe artifact: solution.py is a link, not a file",
        ),
        (
            Submission(files={}, odd={"solution.py": "fifo"}),
            "unsafe artifact: solution.py is no file that can be read (fifo)",
        ),
        (
            Submission(files={"solution.py/a": b""}),
            "unsafe artifact: solution.py is a directory",
        ),
        (
            Submission(files={"solution.py": b"x" * (SOURCE_BYTES_MAX + 1)}),
            f"solution.py has {SOURCE_BYTES_MAX + 1} bytes, more than {SOURCE_BYTES_MAX}",
        ),
    ],
)
def test_what_cannot_be_taken_says_why(submission: Submission, problem: str) -> None:
    taken = take(task(), submission)
    assert (taken.source, taken.problem) == (b"", problem)


@pytest.mark.parametrize(
    "path",
    [
        "conftest.py",
        "deep/conftest.py",
        "pytest.ini",
        "tox.ini",
        "setup.cfg",
        "pyproject.toml",
        "sitecustomize.py",
        "usercustomize.py",
        "x.pth",
        "__pycache__/solution.cpython-311.pyc",
        "pytest.py",
        "_pytest/__init__.py",
        "dataclasses.py",
        "json/__init__.py",
        "test_hidden.py",
        "tests/test_hidden.py",
        "checker.py",
    ],
)
def test_what_reaches_for_the_tests_is_named(path: str) -> None:
    submission = Submission(files={"solution.py": b"x", path: b"y"})
    (sign,) = take(task(TESTS), submission).tamper
    assert path in sign


@pytest.mark.parametrize(
    "path",
    ["test.py", "notes.md", "src/json.py", "data/types.py", "test_mine.py", "main.py", "a b"],
)
def test_what_reaches_for_nothing_is_not(path: str) -> None:
    submission = Submission(files={"solution.py": b"x", path: b"y"})
    assert take(task(TESTS), submission).tamper == ()


CACHE = b"\xa7\r\r\n" + bytes(4) + b"time" + b"size" + b"code"
UNCHECKED = CACHE[:4] + b"\x01" + CACHE[5:]


@pytest.mark.parametrize(
    ("path", "content", "named"),
    [
        ("__pycache__/solution.cpython-311.pyc", CACHE, False),
        ("deep/__pycache__/other.cpython-311.pyc", CACHE, False),
        ("__pycache__/solution.cpython-311.pyc", UNCHECKED, True),
        ("solution.pyc", CACHE, True),
        ("json/__pycache__/x.py", CACHE, True),
    ],
)
def test_a_cache_is_named_unless_every_run_of_python_leaves_it(
    path: str, content: bytes, *, named: bool
) -> None:
    submission = Submission(files={"solution.py": b"x", path: content})
    assert bool(take(task(TESTS), submission).tamper) is named


@pytest.mark.parametrize(
    ("path", "what", "named"),
    [
        ("pipe", Odd.FIFO, True),
        ("disk", Odd.DEVICE, True),
        ("other.py", Odd.HARD_LINK, False),
        ("conftest.py", Odd.HARD_LINK, True),
        ("solution.py", Odd.HARD_LINK, True),
        ("core", Odd.TOO_LARGE, False),
        (".venv/lib/pipe", Odd.FIFO, False),
        ("a.sock", Odd.SOCKET, False),
        ("private", Odd.UNREADABLE, False),
        ("conftest.py", Odd.UNREADABLE, True),
        ("n\n\x1b", Odd.FIFO, True),
    ],
)
def test_what_was_not_read_is_named_when_it_could_have_had_an_effect(
    path: str, what: Odd, *, named: bool
) -> None:
    taken = take(task(), Submission(files={"solution.py": b"x"}, odd={path: what}))
    assert taken.source == (b"" if path == "solution.py" else b"x")
    assert bool(taken.tamper) is named
    assert all(sign.isprintable() for sign in taken.tamper)


@pytest.mark.parametrize(
    ("submission", "problem"),
    [
        (Submission(files={"solution.py": b"x"}, odd={"deep": "too many"}), "too many files"),
        (Submission(files={}, links={".": "x"}), "is a link"),
        (Submission(files={}, odd={".": "device"}), "as a whole (device)"),
        (Submission(files={"solution.py": b"x"}, odd={"a": "fifo"}, links={"b": "c"}), ""),
    ],
)
def test_what_spoils_a_submission_as_a_whole(submission: Submission, problem: str) -> None:
    assert whole_problem(submission).endswith(problem)
    assert bool(whole_problem(submission)) is bool(problem)


def test_what_is_named_is_bounded() -> None:
    files = {"solution.py": b"x", **{f"{n}/conftest.py": b"" for n in range(1000)}}
    assert len(take(task(), Submission(files=files)).tamper) < 100


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("solution.py", True),
        ("tests", True),
        ("conftest.py", True),
        ("deep/conftest.py", True),
        ("json", True),
        ("pytest.py", True),
        ("test_hidden.py", True),
        ("runs/latest", False),
        ("data", False),
        (".#solution.py", False),
        (".venv/bin/python", False),
        (".venv/lib/python3.11/site-packages/conftest.py", False),
        ("node_modules/.bin/tsc", False),
    ],
)
def test_a_link_is_named_where_it_could_have_changed_a_test_run(path: str, *, named: bool) -> None:
    submission = Submission(files={"solution.py": b"x"}, links={path: "/elsewhere"})
    signs = (f"ships a link: {path}",) if named else ()
    assert take(task(TESTS), submission).tamper == signs


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (".venv/lib/python3.11/site-packages/distutils-precedence.pth", False),
        ("deep/venv/lib/python3.11/site-packages/numpy/conftest.py", False),
        ("node_modules/gyp/setup.cfg", False),
        (".tox/py311/lib/x.pyc", False),
        (".local/lib/python3.11/site-packages/x.pth", True),
        ("json/venv/x.py", False),
        ("json/__init__.py", True),
        ("venv.pth", True),
    ],
)
def test_what_tools_keep_for_themselves_is_no_sign(path: str, *, named: bool) -> None:
    submission = Submission(files={"solution.py": b"x", path: b"y"})
    assert bool(take(task(TESTS), submission).tamper) is named


RIGHT, WRONG = CheckStatus.PASSED, CheckStatus.WRONG_ANSWER


def verdict(outcome: Outcome, *statuses: CheckStatus, tamper: tuple[str, ...] = ()) -> Verdict:
    checks = tuple(Check(id=str(n), status=status) for n, status in enumerate(statuses))
    return Verdict(outcome=outcome, checks=checks, tamper=tamper, detail="why")


@pytest.mark.parametrize(
    ("judged", "value"),
    [
        (verdict(Outcome.GRADED, RIGHT, RIGHT), 1.0),
        (verdict(Outcome.GRADED, RIGHT, WRONG), 0.0),
        (verdict(Outcome.GRADED, WRONG), 0.0),
        (verdict(Outcome.GRADED), 0.0),
        (verdict(Outcome.GRADED, RIGHT, tamper=("a conftest",)), 0.0),
        (verdict(Outcome.AGENT_FAULT), 0.0),
        (verdict(Outcome.INFRA_FAULT, RIGHT), None),
        (verdict(Outcome.GRADER_FAULT), None),
        (verdict(Outcome.CANCELLED), None),
    ],
)
def test_the_reward_follows_from_the_verdict(judged: Verdict, value: float | None) -> None:
    reward = reward_of(judged)
    assert reward.value == value
    assert reward.why
