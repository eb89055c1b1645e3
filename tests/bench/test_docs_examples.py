"""The guides' Python runs as it stands there and prints what stands below it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BLOCKS = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


@pytest.mark.slow
@pytest.mark.sandbox
@pytest.mark.parametrize("name", ["sandbox.md", "verification.md"])
def test_the_examples_run_and_print_what_they_say(
    repository: Path, tmp_path: Path, name: str
) -> None:
    guide = (repository / "docs" / name).read_text(encoding="utf-8")
    examples = BLOCKS.findall(guide)
    assert len(examples) == guide.count("```python") >= 1
    for source, printed in examples:
        program = tmp_path / "example.py"
        program.write_text(source, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(program)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr, done.stdout) == (0, "", printed)


@pytest.mark.parametrize("name", ["sandbox.md", "security.md", "verification.md", "benchmarks.md"])
def test_the_guides_link_to_files_that_are_there(repository: Path, name: str) -> None:
    text = (repository / "docs" / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)\)", text)
    missing = [target for target in targets if not (repository / "docs" / target).exists()]
    assert not missing


def test_the_limits_table_has_every_limit_and_its_default(repository: Path) -> None:
    from dataclasses import fields

    from tiltyard.core.execution import MIB, Limits

    text = (repository / "docs" / "sandbox.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `(\w+)`[^|]* \| ([^|]+) \|", text, re.MULTILINE))
    defaults = Limits()
    assert shown["memory_bytes"] == f"{defaults.memory_bytes // MIB} MiB"
    assert shown["disk_bytes"] == f"{defaults.disk_bytes // MIB} MiB, {defaults.inodes:,}"
    for name in ("pids", "cpus", "open_files"):
        assert shown[name] == str(getattr(defaults, name))
    assert {field.name for field in fields(Limits)} <= shown.keys() | {"inodes"}


def test_the_verdict_tables_name_every_outcome_and_status(repository: Path) -> None:
    from tiltyard.core.verdict import CheckStatus, Outcome

    text = (repository / "docs" / "verification.md").read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE))
    named = set(re.findall(r"`(\w+)`", rows))
    assert {*Outcome, *CheckStatus} == named
