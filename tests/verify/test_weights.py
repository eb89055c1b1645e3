"""Weights files: what is read, and how each mistake is told."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tiltyard.core.errors import UsageError
from tiltyard.core.ids import TaskId
from tiltyard.core.weights import DEFAULT, Bounds, Unresolved, Weighting
from tiltyard.verify.weights_file import read_weights, weights_of

WHOLE = """
quantum = 0.05
gate = false

[tests]
weight = 3
partial = true

[components.style]
weight = 1

[components.cost_memory]
weight = 0.5
best = 1.0
worst = 4.0
relative = true
quantum = 0.25
unresolved = "zero"

[tasks."repair-*".tests]
weight = 2
"""


def read(tmp_path: Path, text: str | bytes) -> Weighting:
    path = tmp_path / "weights.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_weights(path)


def test_every_field_is_read(tmp_path: Path) -> None:
    weighting = read(tmp_path, WHOLE)

    weights = weighting.of(TaskId("other"))
    assert (weights.tests, weights.partial, weights.gate, weights.quantum) == (3, True, False, 0.05)
    style, memory = weights.components["style"], weights.components["cost_memory"]
    assert (style.weight, style.bounds, style.unresolved) == (1, None, Unresolved.DROP)
    assert memory.bounds == Bounds(best=1, worst=4, relative=True)
    assert (memory.quantum, memory.unresolved) == (0.25, Unresolved.ZERO)
    own = weighting.of(TaskId("repair-7"))
    assert (own.tests, own.components) == (2, {})


@pytest.mark.slow
def test_the_guides_example_is_read_and_its_program_prints_what_it_says(
    tmp_path: Path, repository: Path
) -> None:
    guide = (repository / "docs" / "rewards.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", guide, re.DOTALL)
    weighting = read(tmp_path, example)
    assert set(weighting.default.components) == {"style", "cost_memory"}
    assert weighting.of(TaskId("repair-1")).components == {}
    ((program, printed),) = re.findall(
        r"```python\n(.*?)```\n\n```text\n(.*?)```", guide, re.DOTALL
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == (printed, "")


def test_an_empty_file_is_the_default(tmp_path: Path) -> None:
    assert read(tmp_path, "") == Weighting(default=DEFAULT)


def test_a_digest_tells_weights_apart_and_not_files(tmp_path: Path) -> None:
    digests = {
        read(tmp_path, text).default.digest
        for text in ("", "gate = true", "# nothing", "[tests]\nweight = 1.0", "quantum = 0.0")
    }
    assert digests == {DEFAULT.digest}
    others = ("gate = false", "quantum = 0.5", "[tests]\nweight = 2", "[components.a]\nweight = 0")
    assert len({read(tmp_path, text).default.digest for text in others} - digests) == len(others)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("gates = true", "gates"),
        ("gate = 'yes'", "gate"),
        ("[tests]\nweight = -1", "tests.weight"),
        ("[tests]\nweight = nan", "tests.weight"),
        ("[tests]\nweight = inf", "tests.weight"),
        ("[tests]\nweight = '1'", "tests.weight"),
        ("[tests]\nshare = 1", "tests.share"),
        ("[components.style]\nbest = 1", "components.style.weight"),
        ("[components.style]\nweight = -0.5", "components.style.weight"),
        ("[components.style]\nweight = 1\nbest = 0", "components.style: best and worst"),
        ("[components.style]\nweight = 1\nbest = 1\nworst = 1", "components.style: best and worst"),
        ("[components.style]\nweight = 1\nbest = nan\nworst = 1", "components.style.best"),
        ("[components.style]\nweight = 1\nrelative = true", "components.style: relative"),
        ("[components.style]\nweight = 1\nunresolved = 'half'", "components.style.unresolved"),
        ("[components.style]\nweight = 1\nquantum = 0.3", "components.style.quantum"),
        ("quantum = 0.03", "quantum"),
        ("quantum = 2", "quantum"),
        ("quantum = -0.1", "quantum"),
        ("[tests]\nweight = 0", "all weights are zero"),
        ("[tests]\nweight = 0\n[components.a]\nweight = 0", "all weights are zero"),
        ("[tasks.a.tests]\nweight = 0", "tasks.a: all weights are zero"),
        ("[tasks.a]\ntasks = 1", "tasks.a.tasks"),
        ("[components.tests]\nweight = 1", "the tests are no component"),
        ("[tests\n", "not TOML"),
        (b"\xff", "not TOML"),
    ],
)
def test_a_mistake_names_file_and_field(tmp_path: Path, text: str | bytes, field: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(tmp_path, text)
    assert str(tmp_path / "weights.toml") in refused.value.message
    assert field in refused.value.message
    assert "docs/rewards.md" in (refused.value.fix or "")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml cannot be read"):
        read_weights(tmp_path / "none.toml")
    os.mkfifo(tmp_path / "pipe")
    for nothing_to_read in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UsageError, match="is not a file"):
            read_weights(nothing_to_read)
    with pytest.raises(UsageError, match="more than"):
        read(tmp_path, "#" * (1024 * 1024 + 1))


def test_a_tasks_own_table_is_read_in_the_same_way() -> None:
    assert weights_of({"tests": {"partial": True}}, where="task.toml").partial
    with pytest.raises(UsageError, match=r"task\.toml: tests\.weight"):
        weights_of({"tests": {"weight": -1.0}}, where="task.toml")
