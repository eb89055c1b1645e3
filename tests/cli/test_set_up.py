"""`scripts/setup-venv`: one line for each step, and the last lines of what failed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "yard"
version = "1"
"""
BACKEND = """
import pathlib
import zipfile

FILES = {
    "METADATA": "Metadata-Version: 2.1\\nName: yard\\nVersion: 1\\n",
    "WHEEL": "Wheel-Version: 1.0\\nTag: py3-none-any\\n",
    "RECORD": "",
}

def prepare_metadata_for_build_editable(directory, config_settings=None):
    made = pathlib.Path(directory, "yard-1.dist-info")
    made.mkdir()
    for name, text in FILES.items():
        (made / name).write_text(text)
    return made.name

def build_editable(directory, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{directory}/yard-1-py3-none-any.whl", "w") as wheel:
        for name, text in FILES.items():
            wheel.writestr(f"yard-1.dist-info/{name}", text)
    return "yard-1-py3-none-any.whl"
"""
BROKEN = (
    BACKEND
    + """
def build_editable(*_, **__):
    raise SystemExit("no compiler of that name")
"""
)


def set_up(directory: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [directory / "scripts" / "setup-venv", ".venv/.installed"],
        env={**os.environ, "PYTHON": sys.executable, "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_set_up_says_what_it_does_and_what_failed(tmp_path: Path, repository: Path) -> None:
    shutil.copytree(repository / "scripts", tmp_path / "scripts")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    (tmp_path / "backend.py").write_text(BROKEN)
    stamp = tmp_path / ".venv" / ".installed"

    failed = set_up(tmp_path)
    assert failed.returncode == 1
    assert "  making .venv with " in failed.stdout
    assert "  building the C programs\n" in failed.stdout
    assert "    no compiler of that name\n" in failed.stderr
    assert "Fix: " in failed.stderr
    assert "build/setup.log" in failed.stderr
    assert len(failed.stderr.splitlines()) <= 22
    assert "no compiler of that name" in (tmp_path / "build" / "setup.log").read_text()
    assert not stamp.exists()

    (tmp_path / "backend.py").write_text(BACKEND)
    done = set_up(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    first, *steps, last = done.stdout.splitlines()
    assert first.startswith("Setting up .venv")
    assert steps == ["  building the C programs", "  installing 1 packages"]
    assert last.startswith("  done after ")
    assert stamp.exists()
