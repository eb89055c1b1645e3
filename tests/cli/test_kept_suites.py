"""What one command has learned of a repository's tests, the next one knows."""

import json
from pathlib import Path

import pytest

from cli.conftest import Tiltyard
from tasks.directories import REPOSITORY, lay

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]


def test_the_next_command_learns_nothing_again(
    tiltyard: Tiltyard, environment: dict[str, str], tmp_path: Path
) -> None:
    task = lay(tmp_path / "task", REPOSITORY)
    kept: list[tuple[str, int]] = []
    for seed in ("1", "2", "3"):
        # Whatever runs are planned, and in which order, no hash may decide.
        environment["PYTHONHASHSEED"] = seed
        said = json.loads(tiltyard("verify", task, task / "solution", "--json").stdout)
        assert (said["outcome"], said["reward"], said["tamper"]) == ("graded", 1.0, [])
        kept += [(path.name, path.stat().st_ino) for path in (tmp_path / "cache").iterdir()]
    assert len(kept) == 3
    # A run that is not among those that are kept would have the file written anew.
    assert len(set(kept)) == 1
    lay(task, {**REPOSITORY, "instruction.md": "Another.\n"})
    tiltyard("verify", task, task / "solution")
    assert len(list((tmp_path / "cache").iterdir())) == 2
