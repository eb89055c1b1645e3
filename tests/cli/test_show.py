"""What `show` tells of a stored rollout, whatever is stored."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from sample_records import sample_trajectory
from tiltyard.cli.show import show
from tiltyard.config import Settings
from tiltyard.core.errors import UsageError
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Component, Evidence, Gap, Outcome
from tiltyard.store import RunStore

HOSTILE = "\ud800 lone, \x1b]0;title\x07\x1b[2J, [bold]markup[/bold], \r over"


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    """The command sends logs below a warning nowhere; without it they would be output."""
    with capture_logs():
        yield


async def recorded(directory: Path, *trajectories: Trajectory) -> Path:
    async with RunStore.create(directory) as store:
        for trajectory in trajectories:
            await store.append(trajectory)
    return directory


def saying(text: str) -> Trajectory:
    """A rollout in which everything that a model or a program wrote is this text."""
    made = sample_trajectory(2)
    first, *_ = made.steps
    assert first.observation is not None
    step = replace(
        first,
        reply=replace(first.reply, text=text),
        code=text,
        observation=replace(first.observation, text=text),
    )
    check = replace(made.verdict.checks[0], evidence=text)
    return replace(
        made,
        steps=(step, replace(step, code=f"{text}\n{text}")),
        verdict=replace(made.verdict, checks=(check,), tamper=(text,)),
        reward=replace(made.reward, why=text),
        family=text,
    )


def unprintable(text: str) -> Iterator[str]:
    return (char for char in text if not char.isprintable() and char != "\n")


@pytest.mark.parametrize("rollout", ["r000002", None])
async def test_hostile_text_is_escaped_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rollout: str | None
) -> None:
    run = await recorded(tmp_path / "[red]run", saying(HOSTILE))

    assert await show(rollout, run, Settings(), mend=False, as_json=False) == 0
    told = capsys.readouterr().out
    assert rollout or "[red]run" in told.replace("\n", "")
    assert not list(unprintable(told))
    told.encode()
    if rollout:
        assert "\\ud800 lone, \\x1b]0;title\\x07\\x1b[2J, [bold]markup[/bold], \\r over" in told


async def test_a_record_is_plain_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = await recorded(tmp_path / "run", saying(HOSTILE))

    assert await show("r000002", run, Settings(), mend=False, as_json=True) == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert captured.err == ""
    assert record["versions"] == {"policy": "7", "task": "1"}
    assert record["steps"][0]["execution"]["enforced"] == {"memory": "cgroup", "disk": "tmpfs"}
    assert record["steps"][0]["execution"]["stdout"]["head"] == "\x00\\xffhead"
    assert record["steps"][0]["reply"]["text"] == HOSTILE


async def test_the_task_is_shown_with_its_starter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await recorded(tmp_path / "run", sample_trajectory(2))

    await show("r000002", run, Settings(), mend=False, as_json=False)
    told = capsys.readouterr().out
    for word in ("Return 2.", "f() == 2", "1 def f():", "2     return 0", "-    return 0"):
        assert word in told
    await show("r000002", run, Settings(), mend=False, as_json=True)
    prompt = json.loads(capsys.readouterr().out)["prompt"]
    assert (prompt["instruction"], prompt["code"]) == ("Return 2.", "def f():\n    return 0\n")


async def test_mending_says_what_it_did(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = await recorded(tmp_path / "run", sample_trajectory(1), sample_trajectory(2))
    (run / "index.sqlite").unlink()

    assert await show(None, run, Settings(), mend=True, as_json=True) == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)) == 2
    assert captured.err == "the index was made again: 2 rollouts\n"


async def test_what_cannot_be_mended_is_named_and_something_to_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = await recorded(tmp_path / "run", sample_trajectory(1))
    (run / "index.sqlite").unlink()
    segment = run / "segments" / "000001.seg"
    segment.write_bytes(b"garbage that is no header" * 10)

    assert await show(None, run, Settings(), mend=True, as_json=True) == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out) == []
    assert f"{segment} at offset 0" in captured.err
    assert "what it held is lost" in captured.err


async def test_the_newest_run_is_one_in_which_something_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings(runs_dir=tmp_path)
    await recorded(tmp_path / "a")
    with pytest.raises(UsageError, match=r"no rollout has finished in /.*, the newest run"):
        await show(None, None, settings, mend=False, as_json=True)
    await recorded(tmp_path / "b", sample_trajectory(1))
    stopped = sample_trajectory(3)
    cancelled = replace(stopped.verdict, outcome=Outcome.CANCELLED)
    await recorded(tmp_path / "c", replace(stopped, verdict=cancelled))
    for name, at in (("b", 1), ("a", 2), ("c", 3)):
        os.utime(tmp_path / name / "index.sqlite", (at, at))

    assert await show(None, None, settings, mend=False, as_json=True) == 0
    assert [line["rollout"] for line in json.loads(capsys.readouterr().out)] == ["r000001"]


async def test_components_are_shown_with_their_evidence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    seen = tuple(
        Evidence(message=f"unused {n} {HOSTILE}", code="F401", path="a.py", line=n)
        for n in range(1, 6)
    )
    components = (
        Component(name="style", raw=5, unit="findings", normalised=0.5, reference=1, evidence=seen),
        Component(name="growth", raw=None, gap=Gap.UNRESOLVED),
    )
    made = sample_trajectory(2)
    verdict = replace(made.verdict, components=components)
    run = await recorded(tmp_path / "run", replace(made, verdict=verdict))

    assert await show("r000002", run, Settings(), mend=False, as_json=False) == 0
    told = capsys.readouterr().out
    assert not list(unprintable(told))
    assert "5 findings" in told
    assert "a.py:1: F401 unused 1" in told
    assert "and 2 more" in told
    assert "none: unresolved" in told
