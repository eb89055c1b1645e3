"""What a task says about its rewards, and what `verify` and `run` are told beside it."""

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from cli.test_model_servers import answering
from tasks.directories import FUNCTION, lay
from tiltyard.store import RunReader

Tiltyard = Callable[..., "subprocess.CompletedProcess[str]"]
RIGHT = FUNCTION["solution/solution.py"]
HALF = "def add(a, b):\n    return a + b\n\n\ndef srt(xs):\n    return xs\n"
PARTIAL = FUNCTION["task.toml"] + "baseline = 0.25\n[tiltyard.reward]\ntests.partial = true\n"
FRESH = {
    "task.toml": FUNCTION["task.toml"]
    + '[tiltyard.checks]\ninputs = { file = "inputs.py", target = "add", fresh_cases = 2 }\n',
    "tests/inputs.py": "def generate(rng, size):\n    return rng.randrange(99), size\n",
}
RATED = {
    "task.toml": FUNCTION["task.toml"]
    + '[tiltyard.checks]\nrubric = { clear = "Is it clear?" }\n'
    + "[tiltyard.reward]\ncomponents.judge = { weight = 1 }\n"
}

pytestmark = [pytest.mark.slow, pytest.mark.sandbox]


def verified(
    tiltyard: Tiltyard, tmp_path: Path, files: Mapping[str, str], source: str, *words: object
) -> dict[str, Any]:
    task = lay(tmp_path / "task", FUNCTION, files)
    left = lay(tmp_path / "left", {"solution.py": source})
    done = tiltyard("verify", task, left, "--json", *words)
    assert done.returncode in {0, 1}, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def said(answer: str) -> bytes:
    message = {"role": "assistant", "content": answer}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "model": "m"}).encode()


def test_a_tasks_own_weights_hold_unless_others_are_given(
    tiltyard: Tiltyard, tmp_path: Path
) -> None:
    found = verified(tiltyard, tmp_path, {"task.toml": PARTIAL}, HALF)
    assert found["reward"] == pytest.approx((2 / 3 - 0.25) / 0.75)
    (tmp_path / "all.toml").write_text("")
    words = ("--weights", tmp_path / "all.toml")
    assert verified(tiltyard, tmp_path, {"task.toml": PARTIAL}, HALF, *words)["reward"] == 0.0


def test_a_seed_draws_the_same_new_inputs_again(tiltyard: Tiltyard, tmp_path: Path) -> None:
    one, two, other = (
        verified(tiltyard, tmp_path, FRESH, RIGHT.replace("a + b", "1000"), "--seed", seed)
        for seed in (7, 7, 8)
    )
    assert one["versions"]["seeds"] == two["versions"]["seeds"] == ["7"]
    assert one["checks"] == two["checks"] != other["checks"]
    assert all("seed 7" in each["evidence"] for each in one["checks"][-2:])


@pytest.mark.parametrize(("answer", "reward"), [('{"clear": 0.5}', 0.75), ("It is splendid.", 1.0)])
def test_a_judge_is_asked_about_a_right_answer(
    tiltyard: Tiltyard, tmp_path: Path, answer: str, reward: float
) -> None:
    with answering(200, said(answer)) as url:
        name = f"openai:{url}#m"
        found = verified(tiltyard, tmp_path, RATED, RIGHT, "--judge", name)
        wrong = verified(tiltyard, tmp_path, RATED, HALF, "--judge", name)
    assert (found["reward"], wrong["reward"]) == (reward, 0.0)
    assert found["versions"]["judge"] == name
    assert [each["gap"] for each in wrong["components"]] == ["not_possible"]


def test_without_a_judge_nobody_is_asked(tiltyard: Tiltyard, tmp_path: Path) -> None:
    found = verified(tiltyard, tmp_path, RATED, RIGHT)
    assert (found["reward"], found["components"]) == (1.0, [])
    task, left = tmp_path / "task", tmp_path / "left"
    assert tiltyard("verify", task, left, "--judge", "gpt").returncode == 2


def test_a_run_records_all_that_a_reward_rests_on(tiltyard: Tiltyard, tmp_path: Path) -> None:
    task = lay(tmp_path / "task", FUNCTION, RATED)
    (tmp_path / "answers.json").write_text(json.dumps({"*": [f"```python\n{RIGHT}```\n"]}))
    run = tmp_path / "run"
    with answering(200, said('{"clear": 0.5}')) as url:
        name = f"openai:{url}#m"
        done = tiltyard(
            *("run", task, "--policy", f"scripted:{tmp_path / 'answers.json'}", "--turns", 1),
            *("--judge", name, "--out", run),
        )
    assert done.returncode == 0, done.stderr
    with RunReader(run) as reader:
        (kept,) = reader.iter_trajectories()
    verdict = kept.verdict
    assert (kept.reward.value, kept.reward.parts) == (0.75, {"tests": 0.5, "judge": 0.25})
    assert kept.reward.gates == {"graded": True, "untampered": True, "correct": True}
    assert kept.weights is not None
    assert kept.versions["weights"] == kept.weights.digest
    assert kept.versions["verifier"] == verdict.verifier == "split-3"
    assert {"tiltyard", "task", "policy"} <= set(kept.versions)
    assert {"task", "task_revision", "mode", "suite", "image", "judge"} <= set(verdict.provenance)
    assert [each.status for each in verdict.checks] == ["passed"] * 3
    (component,) = verdict.components
    assert (component.raw, component.normalised, len(component.evidence)) == (0.5, 0.5, 1)
    assert verdict.assurance == "separate"
