"""The guide says what is so: its example file is read and sound, its tables are the pack's."""

import dataclasses
import re
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sample_command import COMMAND
from tasks.directories import FUNCTION, lay
from tiltyard.core.task import CallSuite, PytestSuite, Submission, Task
from tiltyard.core.verdict import Verdict
from tiltyard.tasks.catalog import load_tasks
from tiltyard.tasks.check import Soundness, check_task
from tiltyard.tasks.directory import read_directory
from tiltyard.tasks.manifest import TiltyardTable, VerifyTable
from tiltyard.tasks.repair import TEMPLATES, TRAINED_FAMILIES, UNSEEN_FAMILIES, FaultKind
from tiltyard.tasks.repair.template import Topic


@pytest.fixture(scope="module")
def guide(repository: Path) -> str:
    return (repository / "docs" / "tasks.md").read_text(encoding="utf-8")


async def test_the_example_file_is_read_and_sound(
    guide: str, tmp_path: Path, verify: Callable[[Task, Submission], Awaitable[Verdict]]
) -> None:
    (block,) = re.findall(r"```jsonl\n(.*?)```", guide, re.DOTALL)
    path = tmp_path / "mine.jsonl"
    path.write_text(block, encoding="utf-8")
    mean, pile = load_tasks(str(path))
    assert isinstance(mean.hidden, CallSuite)
    assert isinstance(pile.hidden, PytestSuite)
    assert (await check_task(mean, verify)).soundness is Soundness.SOUND


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.parametrize("number", range(2))
def test_a_task_directory_is_made_checked_and_judged(
    guide: str, tmp_path: Path, number: int
) -> None:
    examples = re.findall(r"```sh\n(.*?)```\n\n```text\n(.*?)```", guide, re.DOTALL)
    assert len(examples) == 2
    commands, printed = examples[number]
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", f'tiltyard() {{ {COMMAND} "$@" || true; }}\n{commands}'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr


def test_every_field_of_a_task_directory_reads_as_it_stands(guide: str, tmp_path: Path) -> None:
    (fields,) = re.findall(r"```toml\n(\[tiltyard.checks\].*?)```", guide, re.DOTALL)
    path = lay(tmp_path, FUNCTION, {"tests/inputs.py": ""})
    (path / "task.toml").write_text(FUNCTION["task.toml"] + fields)
    checks = read_directory(path).checks
    assert all(getattr(checks, field.name) for field in dataclasses.fields(checks))


def test_the_tables_name_every_field_of_verify(guide: str) -> None:
    section = guide.partition("## Task directories")[2].partition("## Checking tasks")[0]
    named = set(re.findall(r"`(\w+)[`\s]", section))
    assert set(VerifyTable.model_fields) <= named
    assert set(TiltyardTable.model_fields) - {"verify", "checks", "reward"} <= named
    assert all(f"[tiltyard.{table}" in section for table in ("verify", "checks", "reward"))


def test_the_python_example_runs(guide: str, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    exec(compile(block, "docs/tasks.md", "exec"), {})  # noqa: S102 - the guide's own text
    assert "LineRepair(line_number=" in capsys.readouterr().out


@pytest.mark.parametrize("topic", Topic)
def test_the_table_names_each_topics_families(guide: str, topic: Topic) -> None:
    (row,) = re.findall(rf"^\| {topic} \|(.*)\|(.*)\|$", guide, re.MULTILINE)
    for cell, families in zip(row, (TRAINED_FAMILIES, UNSEEN_FAMILIES), strict=True):
        expected = [family for family in families if TEMPLATES[family].topic is topic]
        assert re.findall(r"`(\w+)`", cell) == expected


def test_the_table_names_each_kind_of_fault(guide: str) -> None:
    table = guide.partition("| Kind of fault |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(FaultKind)
