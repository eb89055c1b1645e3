"""What the README and the guides tell a newcomer to do works as it is written."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sample_command import COMMAND
from tiltyard.agents import read_fenced
from tiltyard.cli.main import app
from tiltyard.tasks.catalog import load_tasks


@pytest.fixture(scope="module")
def readme(repository: Path) -> str:
    return (repository / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.sandbox
def test_the_commands_run_as_they_are_written(
    readme: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = re.findall(r"```sh\n(\.venv/bin/tiltyard doctor.*?)```", readme, re.DOTALL)
    lines = block.splitlines()
    assert len(lines) >= 6
    monkeypatch.setenv("TILTYARD_RUNS_DIR", str(tmp_path / "runs"))
    for line in lines:
        done = subprocess.run(
            ["sh", "-c", line.replace(".venv/bin/tiltyard", str(COMMAND))],
            cwd=repository,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        # Doctor may find something to look at, such as weaker limits.
        assert done.returncode in ({0, 1} if "doctor" in line else {0}), (line, done.stderr)
        if line.startswith(".venv/bin/tiltyard show mean"):
            assert "turn 2 of 2" in done.stdout
            assert "reward 1" in done.stdout


def test_the_examples_in_help_are_among_them(readme: str) -> None:
    examples = [command.epilog for command in app.registered_commands if command.epilog]
    assert len(examples) >= 6
    for example in examples:
        line = example.removeprefix("Example: tiltyard ")
        assert f"\n.venv/bin/tiltyard {line}" in readme, example


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.parametrize("start", [["-m", "tiltyard", "--version"], ["-c", "EXAMPLE"]])
def test_the_python_of_this_environment_runs_it(readme: str, start: list[str]) -> None:
    ((example, printed),) = re.findall(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", readme, re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, *(example if part == "EXAMPLE" else part for part in start)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout == (printed if "EXAMPLE" in start else "0.1.0\n")


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "docs/tasks.md"])
def test_every_link_leads_to_a_file(repository: Path, name: str) -> None:
    page = repository / name
    targets = re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
    assert not [target for target in targets if not (page.parent / target).exists()]


def test_every_target_of_make_that_is_named_exists(readme: str, repository: Path) -> None:
    made = re.findall(r"^(\w+):", (repository / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake (\w+)", readme)) - {"the"} <= set(made)


def test_the_examples_are_those_of_the_guide_and_their_answers_fit(repository: Path) -> None:
    guide = (repository / "docs" / "tasks.md").read_text(encoding="utf-8")
    examples = repository / "examples"
    (block,) = re.findall(r"```jsonl\n(.*?)```", guide, re.DOTALL)
    assert (examples / "tasks.jsonl").read_text(encoding="utf-8") == block
    lines = (examples / "answers.jsonl").read_text(encoding="utf-8").splitlines()
    answers = {each["task"]: each["answers"] for each in map(json.loads, lines)}
    pack = load_tasks("repair:heldout?count=1")
    for task in (*load_tasks(str(examples / "tasks.jsonl")), *pack):
        assert read_fenced("", answers[task.id][-1]).code == task.reference
