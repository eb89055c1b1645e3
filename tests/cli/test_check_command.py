"""`tiltyard check`: sound tasks, unsound ones, and both forms of the answer."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.directories import FUNCTION, SCRIPT, lay

Tiltyard = Callable[..., "subprocess.CompletedProcess[str]"]

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]

SOUND = {
    "id": "double",
    "instruction": "Return twice x.",
    "starter": "def double(x):\n    return x\n",
    "reference": "def double(x):\n    return 2 * x\n",
    "hidden": {"cases": [{"id": "h1", "target": "double", "args": "(3,)", "expected": "6"}]},
}
SLIP = {
    **SOUND,
    "id": "slip",
    "hidden": {"cases": [{"id": "h1", "target": "double", "args": "(3,)", "expected": "7"}]},
}
GRADED = "test -e x; echo $((1 - $?)) > /logs/verifier/reward.txt\n"
PAYS = "if test -e x; then echo 1; else echo 0.5; fi > /logs/verifier/reward.txt\n"
LOOSE = "from solution import add\n\n\ndef test_add():\n    assert add(1, 2)\n"
BROKEN = {**SOUND, "id": "broken", "hidden": {"tests": {"test_a.py": "def test_a(:\n"}}}


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in (SOUND, SLIP, BROKEN)))
    return path


def test_unsound_tasks_are_named_with_what_is_wrong(tiltyard: Tiltyard, tasks: Path) -> None:
    done = tiltyard("check", tasks)

    assert done.returncode == 1, done.stderr
    assert "its reference fails 1 of 1 tests; first h1 (wrong_answer)" in done.stdout
    assert "SyntaxError" in done.stdout
    assert "importlib" not in done.stdout
    assert "3 tasks: 1 sound, 2 unsound" in done.stdout


def test_several_names_are_checked_together(
    tiltyard: Tiltyard, tasks: Path, tmp_path: Path
) -> None:
    done = tiltyard("check", tasks, lay(tmp_path / "sums", FUNCTION))

    assert "4 tasks: 2 sound, 2 unsound" in done.stdout, done.stderr


def test_the_answer_as_json(tiltyard: Tiltyard, tasks: Path) -> None:
    done = tiltyard("check", tasks, "--json")

    found = {each["task_id"]: each["soundness"] for each in json.loads(done.stdout)}
    assert found == {"double": "sound", "slip": "unsound", "broken": "unsound"}


def test_sound_tasks_need_no_look(tiltyard: Tiltyard) -> None:
    done = tiltyard("check", "repair:heldout?count=5")

    assert done.returncode == 0, done.stdout
    first, second = done.stdout.splitlines()
    assert first == "5 tasks: 5 sound"
    assert second.startswith("best constant answer: 0.")


def test_a_task_directory_is_checked(tiltyard: Tiltyard, tmp_path: Path) -> None:
    lay(tmp_path / "sums", FUNCTION)
    lay(tmp_path / "script", SCRIPT, {"tests/test.sh": GRADED, "solution/solve.sh": "touch x\n"})
    name = {"task.toml": '[tiltyard]\nid = "pays"\n', "solution/solve.sh": "touch x\n"}
    lay(tmp_path / "pays", SCRIPT, name, {"tests/test.sh": PAYS})
    lay(tmp_path / "loose", FUNCTION, {"tests/test_hidden.py": LOOSE})

    done = tiltyard("check", tmp_path, "--json")

    assert done.returncode == 1, done.stderr
    reports = {each["task_id"]: each for each in json.loads(done.stdout)}
    assert reports["sums"]["soundness"] == "sound"
    assert reports["some:words-here"]["soundness"] == "sound"
    assert reports["pays"]["problems"] == [
        "nothing done earns a reward of 0.5.",
        "everything deleted earns a reward of 0.5.",
    ]
    assert reports["loose"]["soundness"] == "unsound"
    assert "the constant answer True passes every check." in reports["loose"]["problems"]
    assert reports["loose"]["baseline"] == 1.0


def test_a_run_pays_nobody_for_an_unsound_task(tiltyard: Tiltyard, tasks: Path) -> None:
    answers = tasks.with_name("answers.json")
    right = "```python\ndef double(x):\n    return 2 * x\n```"
    answers.write_text(json.dumps({"*": [right]}))

    done = tiltyard("run", tasks, "--policy", f"scripted:{answers}", "--json")

    assert done.returncode == 1, done.stderr
    rewards = {each["task"]: each["reward"] for each in json.loads(done.stdout)["rollouts"]}
    assert rewards == {"double": 1.0, "slip": None, "broken": None}
