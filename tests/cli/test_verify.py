"""`tiltyard verify`: exit codes and both forms of the answer, run as a user runs it."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks.directories import FUNCTION, SCRIPT, lay
from tiltyard.cli.verify import document, exit_code, not_run, unpaid
from tiltyard.core.verdict import (
    Check,
    CheckStatus,
    Component,
    Curve,
    Evidence,
    Gap,
    Outcome,
    Reward,
    Verdict,
)
from tiltyard.core.weights import ComponentWeight, Weights
from tiltyard.tasks.catalog import load_task
from tiltyard.tasks.submissions import read_submission
from tiltyard.verify.reward import reward_of

Tiltyard = Callable[..., "subprocess.CompletedProcess[str]"]
RIGHT = {"solution.py": FUNCTION["solution/solution.py"]}
WRONG = {"solution.py": "def add(a, b):\n    return 12\n\n\ndef srt(xs):\n    return xs\n"}
EXAMPLES = Path(__file__).parents[2] / "examples" / "tasks.jsonl"
KEYS = ["outcome", "reward", "tamper", "checks", "evidence", "versions"]


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return lay(tmp_path / "task", FUNCTION)


def answer(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout)
    assert list(document)[:6] == KEYS
    return document


@pytest.mark.slow
@pytest.mark.sandbox
class TestTheCommand:
    def test_a_right_answer_is_worth_the_full_reward(
        self, tiltyard: Tiltyard, task: Path, tmp_path: Path
    ) -> None:
        left = lay(tmp_path / "left", RIGHT, {"notes.txt": "x"})
        done = tiltyard("verify", task, left, "--json")
        found = answer(done)
        assert (done.returncode, found["outcome"], found["reward"]) == (0, "graded", 1.0)
        assert found["tamper"] == []
        assert [each["status"] for each in found["checks"]] == ["passed"] * 3
        versions = found["versions"]
        assert {"schema", "verifier", "task_revision", "suite", "image", "seeds", "mode"} <= set(
            versions
        )
        assert (versions["mode"], versions["task"]) == ("split", "task")

    def test_a_wrong_answer_is_shown_with_what_was_wrong(
        self, tiltyard: Tiltyard, task: Path, tmp_path: Path
    ) -> None:
        left = lay(tmp_path / "left", WRONG, {"conftest.py": ""})
        done = tiltyard("verify", task, left)
        assert done.returncode == 1, done.stderr
        assert "wrong_answer" in done.stdout
        assert "test_hidden.py:11" in done.stdout
        assert "tamper: ships a file that configures test runs: conftest.py" in done.stdout
        assert "reward 0: " in done.stdout

    def test_a_task_of_a_file_is_named_by_its_id(self, tiltyard: Tiltyard, tmp_path: Path) -> None:
        answer_file = tmp_path / "answer.py"
        answer_file.write_text("def mean(xs):\n    return sum(xs) / len(xs) if xs else None\n")
        done = tiltyard("verify", EXAMPLES, answer_file, "--id", "mean", "--json")
        assert (done.returncode, answer(done)["reward"]) == (0, 1.0), done.stderr

    def test_one_file_is_a_submission(self, tiltyard: Tiltyard, task: Path, tmp_path: Path) -> None:
        (tmp_path / "my_answer.txt").write_text(RIGHT["solution.py"])
        assert tiltyard("verify", task, tmp_path / "my_answer.txt").returncode == 0

    def test_without_a_solution_it_is_the_agents_fault(
        self, tiltyard: Tiltyard, task: Path, tmp_path: Path
    ) -> None:
        done = tiltyard("verify", task, lay(tmp_path / "left", {"x": ""}), "--json")
        found = answer(done)
        assert (done.returncode, found["outcome"], found["reward"]) == (1, "agent_fault", 0.0)

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"solution/solution.py": WRONG["solution.py"]}, "reference fails"),
            ({"tests/test_hidden.py": "x = 1\n"}, "has no tests"),
            ({"tests/test_hidden.py": "def test_x(:\n"}, "cannot be collected"),
        ],
    )
    def test_a_task_that_cannot_judge_is_a_bad_task(
        self, tiltyard: Tiltyard, task: Path, tmp_path: Path, changes: Mapping[str, str], said: str
    ) -> None:
        lay(task, changes)
        done = tiltyard("verify", task, lay(tmp_path / "left", RIGHT), "--json")
        found = answer(done)
        assert (done.returncode, found["outcome"], found["reward"]) == (2, "grader_fault", None)
        assert said in found["detail"]

    def test_the_reward_is_weighed_as_a_file_says(
        self, tiltyard: Tiltyard, task: Path, tmp_path: Path
    ) -> None:
        half = "def add(a, b):\n    return a + b\n\n\ndef srt(xs):\n    return xs\n"
        left = lay(tmp_path / "left", {"solution.py": half})
        weights = tmp_path / "weights.toml"
        weights.write_text("[tests]\npartial = true\n")
        done = tiltyard("verify", task, left, "--weights", weights, "--json")
        assert done.returncode == 1, done.stderr
        assert answer(done)["reward"] == pytest.approx(2 / 3)

    @pytest.mark.parametrize("wrong", ["no task", "no submission", "unknown field", "one word"])
    def test_wrong_usage(self, tiltyard: Tiltyard, task: Path, tmp_path: Path, wrong: str) -> None:
        left = lay(tmp_path / "left", RIGHT)
        if wrong == "unknown field":
            lay(task, {"task.toml": FUNCTION["task.toml"] + "modul = 1\n"})
        words = {
            "no task": (tmp_path / "nothing", left),
            "no submission": (task, tmp_path / "nothing"),
            "unknown field": (task, left),
            "one word": (task,),
        }[wrong]
        done = tiltyard("verify", *words, "--json")
        assert (done.returncode, done.stdout) == (2, "")
        assert "error:" in done.stderr
        assert "fix:" in done.stderr

    @pytest.mark.parametrize(
        ("script", "code", "reward"),
        [
            ("echo 1 > /logs/verifier/reward.txt", 0, 1.0),
            ("echo 0.5 > /logs/verifier/reward.txt", 1, 0.5),
            ("echo nan > /logs/verifier/reward.txt", 3, None),
            ("true", 3, None),
        ],
    )
    def test_a_plain_task_of_harbor(
        self, tiltyard: Tiltyard, tmp_path: Path, script: str, code: int, reward: float | None
    ) -> None:
        task = lay(tmp_path / "task", SCRIPT, {"tests/test.sh": script})
        done = tiltyard("verify", task, lay(tmp_path / "left", {"out.txt": "x"}), "--json")
        found = answer(done)
        assert (done.returncode, found["reward"]) == (code, reward), done.stdout
        assert found["versions"]["mode"] == "script"

    def test_what_was_not_looked_at_is_told(
        self, tiltyard: Tiltyard, task: Path, tmp_path: Path
    ) -> None:
        state = '[[tiltyard.checks.state]]\nid = "x"\nkind = "file"\npath = "/app/x"\n'
        growth = 'inputs = { file = "inputs.py", target = "add" }\ngrowth = true\nleaks = true\n'
        toml = f"{FUNCTION['task.toml']}[tiltyard.checks]\n{growth}{state}"
        lay(task, {"task.toml": toml, "tests/inputs.py": "raise ValueError('no')\n"})
        done = tiltyard("verify", task, lay(tmp_path / "left", RIGHT))
        assert "state: 1 not looked at" in done.stdout, done.stderr
        if json.loads(tiltyard("doctor", "--json").stdout)["enforced"]["memory"] != "cgroup":
            pytest.skip("no cgroup counts here what an ordinary user's sandboxes use")
        assert "by a fault of ours or of the task: growth, leaks" in done.stdout
        assert done.stdout.count("none (infra)") == 1
        assert "raised ValueError: no" in done.stdout
        assert done.stderr == "", "no log lines between, and nothing else"

    def test_a_stop_leaves_nothing(
        self, start: Callable[..., "subprocess.Popen[str]"], task: Path, tmp_path: Path
    ) -> None:
        left = lay(tmp_path / "left", {"solution.py": "while True:\n    pass\n"})
        lay(task, {"task.toml": FUNCTION["task.toml"] + "time_limit_s = 60\n"})
        process = start("verify", task, left)
        assert process.stderr is not None
        # A judgement that takes long tells so, and by then it has its sandboxes.
        assert " after 5 s" in process.stderr.readline()
        below = descendants(process.pid)
        assert below
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
        assert not [each for each in below if Path(f"/proc/{each}").exists()]


def descendants(pid: int) -> set[int]:
    """Every living process below one."""
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        at = waiting.pop()
        for thread in Path(f"/proc/{at}/task").glob("*/children"):
            try:
                children = [int(each) for each in thread.read_text().split()]
            except OSError:
                continue
            found.update(children)
            waiting += children
    return found


PASSED = (Check(id="a", status=CheckStatus.PASSED),)
FAILED = (*PASSED, Check(id="b", status=CheckStatus.TIMEOUT, evidence="slow"))


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        (Verdict(outcome=Outcome.GRADED, checks=PASSED), 0),
        (Verdict(outcome=Outcome.GRADED, checks=FAILED), 1),
        (Verdict(outcome=Outcome.GRADED, checks=PASSED, tamper=("x",)), 1),
        (Verdict(outcome=Outcome.AGENT_FAULT), 1),
        (Verdict(outcome=Outcome.GRADER_FAULT, task_unsound=True), 2),
        (Verdict(outcome=Outcome.GRADER_FAULT), 3),
        (Verdict(outcome=Outcome.INFRA_FAULT), 3),
        (Verdict(outcome=Outcome.CANCELLED), 3),
    ],
)
def test_the_exit_code_of_each_outcome(verdict: Verdict, code: int) -> None:
    assert exit_code(verdict, reward_of(verdict)) == code


def test_a_poor_measure_that_nobody_pays_for_is_named() -> None:
    growth = Component(name="growth", raw=1.0, unit="powers", normalised=0.3)
    good = Component(name="leaks", raw=0.0, unit="bytes", normalised=1.0)
    right = Verdict(outcome=Outcome.GRADED, checks=PASSED, components=(growth, good))
    assert unpaid(right, reward_of(right)) == "measured, but no weight pays for: growth"
    paying = Weights(components={"growth": ComponentWeight(weight=0.1)})
    assert unpaid(right, reward_of(right, paying)) == ""
    wrong = Verdict(outcome=Outcome.GRADED, checks=FAILED, components=(growth,))
    assert unpaid(wrong, reward_of(wrong)) == ""


def test_the_script_that_solves_is_not_run(tmp_path: Path) -> None:
    solving = {"solution/solve.sh": "echo hello > out.txt\n"}
    lay(tmp_path / "harbor", SCRIPT, solving, {"left/out.txt": "hello"})
    task = load_task(str(tmp_path / "harbor"))
    assert "is never run" in not_run(task, read_submission(tmp_path / "harbor/solution", task))
    assert not_run(task, read_submission(tmp_path / "harbor/left", task)) == ""


def test_all_evidence_is_in_the_document() -> None:
    curve = Curve(name="time", x_unit="n", y_unit="s", points=((1.0, float("nan")),), slope=2.0)
    component = Component(
        name="growth",
        raw=None,
        gap=Gap.INFRA,
        evidence=(Evidence(message="steep"),),
        curves=(curve,),
    )
    verdict = Verdict(
        outcome=Outcome.GRADED, checks=FAILED, components=(component,), tamper=("reached",)
    )
    tree = json.loads(json.dumps(document(verdict, Reward(value=None, why="w")), allow_nan=False))
    assert [each["of"] for each in tree["evidence"]] == ["tamper", "b", "growth", "growth"]
    assert tree["reward"] is None
    assert tree["components"][0]["curves"][0]["points"] == [[1.0, "nan"]]


def test_odd_text_is_printed_as_json(tmp_path: Path) -> None:
    verdict = Verdict(outcome=Outcome.GRADED, tamper=(os.fsdecode(b"\xff\n"),))
    assert json.dumps(document(verdict, reward_of(verdict))).isascii()
