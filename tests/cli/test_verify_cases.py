"""Task directories and hostile submissions on a disk, read and judged as the command does it.

One open verifier serves them all; that the command itself does the same is tested beside this.
"""

import os
import stat
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from chosen import shared_cheats
from tasks.directories import FUNCTION, lay
from tiltyard.cli.verify import exit_code
from tiltyard.core.verdict import Outcome, Verdict
from tiltyard.tasks.directory import read_directory
from tiltyard.tasks.submissions import read_submission
from tiltyard.verify.reward import reward_of
from tiltyard.verify.verifier import Verifier
from tiltyard.wiring import open_verifier

pytestmark = [pytest.mark.sandbox, pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

RIGHT = FUNCTION["solution/solution.py"]
TOML = FUNCTION["task.toml"] + "time_limit_s = 1.5\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def verifier() -> AsyncIterator[Verifier]:
    async with open_verifier() as opened:
        yield opened


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return lay(tmp_path / "task", FUNCTION, {"task.toml": TOML})


async def judged(verifier: Verifier, task: Path, left: Path) -> Verdict:
    read = read_directory(task)
    return await verifier.verify(read, read_submission(left, read))


def cases() -> list[Any]:
    # The verifier is tried on all of them in tests/verify; here it is about their way there.
    seen: set[str] = set()
    params = []
    for case in shared_cheats():
        marks = [pytest.mark.long] if case["kind"] in seen else []
        seen.add(case["kind"])
        params.append(pytest.param(case, id=case["id"], marks=marks))
    return params


@pytest.mark.parametrize("case", cases())
async def test_a_shared_case_comes_out_as_it_must(
    verifier: Verifier, tmp_path: Path, shared_cases: Path, case: Mapping[str, Any]
) -> None:
    kept = shared_cases / "cheats"
    beside = {
        "tests/test_hidden.py": (kept / "test_hidden.py").read_bytes(),
        "tests/checker.py": (kept / "checker.py").read_bytes(),
        "solution/solution.py": (kept / "reference.py").read_bytes(),
    }
    task = lay(tmp_path / "task", {"task.toml": TOML, "instruction.md": "x"}, beside)
    left = lay(tmp_path / "left", case["files"])
    left.mkdir(exist_ok=True)
    for path, target in case["links"].items():
        (left / path).symlink_to(target)
    verdict = await judged(verifier, task, left)
    accepted = case["expect"] == "accept"
    assert verdict.outcome in {Outcome.GRADED, Outcome.AGENT_FAULT}, verdict.detail
    assert reward_of(verdict).value == (1.0 if accepted else 0.0), verdict
    assert exit_code(verdict, reward_of(verdict)) == (0 if accepted else 1)
    if case["kind"] == "files":
        assert verdict.tamper


def fifo(left: Path, _task: Path) -> None:
    os.mkfifo(left / "solution.py")


def link_away(left: Path, _task: Path) -> None:
    (left / "solution.py").symlink_to("/etc/passwd")


def link_to_the_reference(left: Path, task: Path) -> None:
    (left / "solution.py").symlink_to(task / "solution" / "solution.py")


def link_to_itself(left: Path, _task: Path) -> None:
    (left / "solution.py").symlink_to("solution.py")


def hard_link(left: Path, task: Path) -> None:
    (left / "solution.py").hardlink_to(task / "solution" / "solution.py")


def directory(left: Path, _task: Path) -> None:
    (left / "solution.py").mkdir()
    (left / "solution.py" / "solution.py").write_text(RIGHT)


def sparse(left: Path, _task: Path) -> None:
    with (left / "solution.py").open("wb") as file:
        file.write(RIGHT.encode())
        file.truncate(2**40)


def device(left: Path, _task: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    os.mknod(left / "solution.py", stat.S_IFCHR | 0o666, os.makedev(1, 9))


def countless(left: Path, _task: Path) -> None:
    (left / "solution.py").write_text(RIGHT)
    for number in range(20_000):
        (left / f"f{number}").touch()


def deep(left: Path, _task: Path) -> None:
    place = left.joinpath(*("d" for _ in range(500)))
    place.mkdir(parents=True)


@pytest.mark.parametrize(
    "leave",
    [
        *(fifo, link_away, link_to_the_reference, link_to_itself, hard_link, directory),
        *(sparse, device, countless, deep),
    ],
)
async def test_an_unsafe_artifact_is_the_agents_fault_and_worth_nothing(
    verifier: Verifier, task: Path, tmp_path: Path, leave: Callable[[Path, Path], None]
) -> None:
    left = tmp_path / "left"
    left.mkdir()
    leave(left, task)
    verdict = await judged(verifier, task, left)
    assert verdict.outcome is Outcome.AGENT_FAULT
    assert reward_of(verdict).value == 0.0
    assert exit_code(verdict, reward_of(verdict)) == 1


def sits_beside(left: Path, _task: Path) -> None:
    os.mkfifo(left / "pipe")


def fifo_for_the_tests(left: Path, _task: Path) -> None:
    os.mkfifo(left / "test_hidden.py")


def link_to_the_tests(left: Path, task: Path) -> None:
    (left / "tests").symlink_to(task / "tests")


def forged_cache(left: Path, _task: Path) -> None:
    lay(left, {"__pycache__/solution.cpython-311.pyc": b"\xa7\r\r\n\x01\0\0\0" + bytes(20)})


@pytest.mark.parametrize(
    "leave", [sits_beside, fifo_for_the_tests, link_to_the_tests, forged_cache]
)
async def test_a_right_answer_beside_a_trap_is_flagged(
    verifier: Verifier, task: Path, tmp_path: Path, leave: Callable[[Path, Path], None]
) -> None:
    left = lay(tmp_path / "left", {"solution.py": RIGHT})
    leave(left, task)
    verdict = await judged(verifier, task, left)
    assert verdict.all_passed
    assert verdict.tamper
    assert reward_of(verdict).value == 0.0


async def test_what_honest_work_leaves_behind_costs_nothing(
    verifier: Verifier, task: Path, tmp_path: Path
) -> None:
    left = lay(
        tmp_path / "left",
        {
            "solution.py": RIGHT,
            "test_mine.py": "def test(): pass\n",
            "a\nb\x1b[2J.txt": "odd name",
            "__pycache__/solution.cpython-311.pyc": b"\xa7\r\r\n\0\0\0\0" + bytes(20),
            ".pytest_cache/v/cache/lastfailed": "{}",
            ".git/HEAD": "ref: refs/heads/main\n",
        },
    )
    (left / os.fsdecode(b"bytes\xff")).write_bytes(b"")
    verdict = await judged(verifier, task, left)
    assert (verdict.tamper, reward_of(verdict).value) == ((), 1.0)


async def test_tests_may_lie_in_directories(verifier: Verifier, task: Path, tmp_path: Path) -> None:
    lay(
        task,
        {
            "tests/more/test_more.py": "from helpers.words import WANT\n"
            "from solution import add\n\n\n"
            "def test_words():\n    assert add('a', 'b') == WANT\n",
            "tests/helpers/__init__.py": "",
            "tests/helpers/words.py": "WANT = 'ab'\n",
            "tests/conftest.py": "import pytest\n",
        },
    )
    left = lay(tmp_path / "left", {"solution.py": RIGHT})
    verdict = await judged(verifier, task, left)
    assert reward_of(verdict).value == 1.0, verdict
    assert {check.id for check in verdict.checks} >= {"more/test_more.py::test_words"}
