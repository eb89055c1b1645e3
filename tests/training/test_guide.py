"""The guide says what is so: its example runs, and its modules and metrics exist."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tiltyard.training.exchange import UpdateMetrics

pytestmark = pytest.mark.train


@pytest.fixture(scope="module")
def guide(repository: Path) -> str:
    return (repository / "docs" / "training.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_python_example_runs(guide: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-c", block],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("UpdateMetrics(update=1, learning_rate=0.0001, loss=0.0, ")
    assert "groups_dropped=1" in done.stdout
    assert not list(tmp_path.iterdir())


def test_every_module_it_names_exists_and_every_module_is_named(
    guide: str, repository: Path
) -> None:
    table = guide.partition("## The parts")[2].partition("PyTorch is imported")[0]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("| ")][1:]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    room = repository / "src" / "tiltyard" / "training"
    there = {path.stem for path in room.glob("*.py")} - {"__init__", "demo_plan", "trainable"}
    assert named == there


def test_the_metrics_it_explains_exist(guide: str) -> None:
    table = guide.partition("## Reading the metrics")[2].partition("## Limits")[0]
    named = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    assert len(named) == 5
    assert named <= {field.name for field in fields(UpdateMetrics)}
