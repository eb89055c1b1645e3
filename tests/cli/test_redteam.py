"""`tiltyard redteam` from outside: its tables, its document, its exit codes."""

import json
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tiltyard.sandbox.conformance.host import descendants

Start = Callable[..., "subprocess.Popen[str]"]
Tiltyard = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]

DOUBLE = {
    "id": "double",
    "instruction": "Return twice x.",
    "starter": "def double(x):\n    return x\n",
    "reference": "def double(x):\n    return 2 * x\n",
    "hidden": {"cases": [{"id": "h1", "target": "double", "args": "(3,)", "expected": "6"}]},
}
TOLD_ALL = {
    **DOUBLE,
    "id": "told-all",
    "visible": {"cases": [{"id": "v1", "target": "double", "args": "(3,)", "expected": "6"}]},
}
WEAK = {
    **DOUBLE,
    "id": "weak",
    "hidden": {"tests": {"test_a.py": "import solution\n\ndef test_a():\n    pass\n"}},
}


@pytest.fixture
def tasks(tmp_path: Path) -> Callable[..., Path]:
    def write(*each: object) -> Path:
        path = tmp_path / "tasks.jsonl"
        path.write_text("".join(f"{json.dumps(one)}\n" for one in each))
        return path

    return write


def test_the_guides_example_prints_what_it_says(tiltyard: Tiltyard, repository: Path) -> None:
    guide = (repository / "docs" / "verification.md").read_text(encoding="utf-8")
    ((line, printed),) = re.findall(
        r"```sh\ntiltyard (redteam [^\n]*)\n```\n\n```text\n(.*?)```", guide, re.DOTALL
    )
    done = tiltyard(*line.replace("'", "").split())

    assert done.returncode == 0, done.stderr
    assert [each.split() for each in done.stdout.splitlines()] == [
        each.split() for each in printed.splitlines()
    ]


def test_hidden_tests_that_the_examples_give_away_are_told(
    tiltyard: Tiltyard, tasks: Callable[..., Path]
) -> None:
    done = tiltyard("redteam", tasks(DOUBLE, TOLD_ALL), "--only", "f", "--only", "a-nan")

    assert done.returncode == 1, done.stderr
    assert "told-all" in done.stdout
    assert "f-visible-examples" in done.stdout
    assert re.search(r"\d+ cheats on 2 tasks: \d+ rejected, 1 accepted, 0 escaped", done.stdout)


def test_the_answer_as_json(tiltyard: Tiltyard, tasks: Callable[..., Path]) -> None:
    done = tiltyard("redteam", tasks(DOUBLE, WEAK), "--only", "a-same-int", "--json")

    assert done.returncode == 1, done.stderr
    double, weak = json.loads(done.stdout)
    assert (double["ground"], weak["ground"], weak["cheats"]) == ("sound", "weak", [])
    (cheat,) = double["cheats"]
    assert (cheat["id"], cheat["came"], cheat["reward"]) == ("a-same-int", "rejected", 0.0)
    assert cheat["statuses"] == ["bad_value_type"]


def test_the_cheats_can_be_listed(tiltyard: Tiltyard, tasks: Callable[..., Path]) -> None:
    path = tasks(DOUBLE)
    done = tiltyard("redteam", path, "--list")
    told = tiltyard("redteam", path, "--list", "--only", "b", "--json")

    assert done.returncode == 0, done.stderr
    names = [each["id"] for each in json.loads(told.stdout)]
    assert len(names) > 30
    assert all(name.startswith("b-") and name in done.stdout for name in names)


@pytest.mark.parametrize("arguments", [("--only", "nosuch"), ("nosuch",), ()])
def test_what_there_is_not_is_wrong_usage(
    tiltyard: Tiltyard, tasks: Callable[..., Path], arguments: tuple[str, ...]
) -> None:
    done = tiltyard("redteam", *([tasks(DOUBLE)] if "--only" in arguments else []), *arguments)

    assert done.returncode == 2
    assert "fix:" in done.stderr


def test_a_stop_leaves_nothing(start: Start, tasks: Callable[..., Path]) -> None:
    process = start("redteam", tasks(DOUBLE), "--only", "e")
    assert process.stderr is not None
    process.stderr.readline()  # the first cheats are on their way
    below = [os.pidfd_open(pid) for pid in descendants(process.pid)]

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert process.returncode == 130
    assert below
    for each in below:
        assert select.select([each], [], [], 10)[0], "a process of it lives on"
        os.close(each)
