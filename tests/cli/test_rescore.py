"""`rescore`: rewards of a recorded run by other weights, with the records left as they are."""

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from sample_policies import Replies, whole_module
from sample_records import sample_trajectory
from sample_verdicts import some_verdicts, some_weights
from tiltyard.cli.rescore import rescore
from tiltyard.cli.show import show
from tiltyard.config import Settings
from tiltyard.core.errors import UsageError
from tiltyard.core.execution import SandboxSpec
from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.task import Split, Submission, Task
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Check, CheckStatus, Component, Gap, Outcome, Verdict
from tiltyard.core.weights import Weighting, Weights
from tiltyard.rollout.episode import Setting
from tiltyard.rollout.runs import attempts, run_attempts, verify_each
from tiltyard.store import RunReader, RunStore
from tiltyard.store.segments import SegmentAppender, segment_numbers
from tiltyard.tasks.repair import make_task
from tiltyard.verify.reward import reward_of
from tiltyard.verify.weights_file import read_weights

STYLED = "[tests]\nweight = 0.8\npartial = true\n[components.style]\nweight = 0.2\n"


def rollout(
    number: int,
    passed: int,
    *,
    group: str = "g",
    style: float | None = None,
    outcome: Outcome = Outcome.GRADED,
    gap: Gap | None = None,
) -> Trajectory:
    """A rollout of a task with four checks, recorded with the default reward."""
    checks = tuple(
        Check(id=str(n), status=CheckStatus.PASSED if n < passed else CheckStatus.TIMEOUT)
        for n in range(4)
    )
    components = (Component(name="style", raw=style, normalised=style, gap=gap),)
    verdict = Verdict(outcome=outcome, checks=checks, components=components)
    return replace(
        sample_trajectory(number),
        id=RolloutId(f"r{number}"),
        group=GroupId(group),
        task_id=TaskId("sums"),
        verdict=verdict,
        reward=reward_of(verdict),
    )


ROLLOUTS = (
    rollout(1, 4, style=0.5),
    rollout(2, 2, style=1.0),
    rollout(3, 4, outcome=Outcome.INFRA_FAULT),
    # In this group a fault of ours left one rollout's style unmeasured.
    rollout(4, 4, style=0.5, group="h"),
    rollout(5, 4, gap=Gap.INFRA, group="h"),
)
NEW = [0.9, 0.4, None, 1.0, 1.0]


@pytest.fixture
async def run(tmp_path: Path) -> Path:
    async with RunStore.create(tmp_path / "run") as store:
        for each in ROLLOUTS:
            await store.append(each)
    return tmp_path / "run"


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "weights.toml"
    path.write_text(STYLED)
    return path


def contents(run: Path) -> dict[str, str]:
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


@pytest.mark.slow
async def test_rewards_follow_the_weights_group_by_group(
    tiltyard: Callable[..., Any], run: Path, weights: Path, tmp_path: Path
) -> None:
    before = contents(run)
    out = tmp_path / "rewards.jsonl"

    done = tiltyard("rescore", run, "--weights", weights, "--out", out, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert told["rollouts"] == lines
    assert [line["rollout"] for line in lines] == ["r1", "r2", "r3", "r4", "r5"]
    assert [line["group"] for line in lines] == ["g", "g", "g", "h", "h"]
    assert [line["old"] for line in lines] == [1.0, 0.0, None, 1.0, 1.0]
    assert [line["reward"] for line in lines] == pytest.approx(NEW)
    digest = read_weights(weights).default.digest
    assert all(line["why"] and line["weights"] == digest for line in lines)
    assert lines[0]["parts"] == pytest.approx({"tests": 0.8, "style": 0.1})
    assert told["changed"] == 2
    assert told["new"] == {"rollouts": 5, "without_reward": 1, "full": 2, "mean": 0.825}
    assert contents(run) == before, "records are never changed"


@pytest.mark.slow
async def test_the_table_tells_what_changed(
    tiltyard: Callable[..., Any], run: Path, weights: Path
) -> None:
    done = tiltyard("rescore", run, "--weights", weights)
    assert done.returncode == 0, done.stderr
    assert "2 of 5 rewards changed" in done.stdout
    assert "0.7500" in done.stdout
    assert "0.8250" in done.stdout
    assert "style 0.1 of 0.2" in done.stdout
    assert "r4" not in done.stdout


@pytest.mark.slow
async def test_the_default_weights_give_what_was_recorded(
    tiltyard: Callable[..., Any], run: Path, tmp_path: Path
) -> None:
    (tmp_path / "none.toml").write_text("")
    done = tiltyard("rescore", run, "--weights", tmp_path / "none.toml", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["changed"] == 0


@pytest.mark.slow
async def test_a_damaged_record_is_named_and_the_others_are_scored(
    tiltyard: Callable[..., Any], run: Path, weights: Path
) -> None:
    with RunReader(run) as reader:
        place = next(row.place for row in reader.iter_rows() if row.id == "r2")
    segment = run / "segments" / f"{place.segment:06d}.seg"
    raw = bytearray(segment.read_bytes())
    raw[place.offset + place.length_bytes // 2] ^= 0xFF
    segment.write_bytes(raw)

    done = tiltyard("rescore", run, "--weights", weights, "--json")
    assert done.returncode == 1
    assert "r2" in done.stderr
    assert f"offset {place.offset}" in done.stderr
    told = json.loads(done.stdout)
    assert [line["rollout"] for line in told["rollouts"]] == ["r1", "r3", "r4", "r5"]
    assert len(told["damaged"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("schema", [1, 2])
async def test_a_run_of_an_older_version_is_scored(
    tiltyard: Callable[..., Any], repository: Path, weights: Path, tmp_path: Path, schema: int
) -> None:
    run = tmp_path / "run"
    await RunStore.create(run).close()
    (segment,) = segment_numbers(run)
    text = (repository / f"tests/store/records/schema-{schema}.json").read_bytes()
    end = SegmentAppender.reopen(run, segment)
    end.append(end.frame(zstandard.ZstdCompressor().compress(text)))
    end.close()
    await RunStore.open(run).close()

    done = tiltyard("rescore", run, "--weights", weights, "--json")
    assert done.returncode == 0, done.stderr
    (line,) = json.loads(done.stdout)["rollouts"]
    # Nothing of style was measured then, so the tests are all that counts.
    assert (line["rollout"], line["old"], line["reward"]) == ("r000002", 1.0, 1.0)
    assert "style dropped (not measured in this group)" in line["why"]


@pytest.mark.slow
@pytest.mark.sandbox
def test_a_run_records_rewards_by_its_weights(
    tiltyard: Callable[..., Any], answers: Path, tmp_path: Path
) -> None:
    constant = tmp_path / "constant.toml"
    constant.write_text("quantum = 0.5\n[tests]\npartial = true\n")
    run = tmp_path / "run"
    tasks = ("repair:heldout?count=2", "--policy", f"scripted:{answers}", "--out", run)
    done = tiltyard("run", *tasks, "--weights", constant, "--json")
    assert done.returncode == 0, done.stderr
    digest = read_weights(constant).default.digest
    recorded = json.loads(done.stdout)["rollouts"]
    assert {each["versions"]["weights"] for each in recorded} == {digest}
    again = json.loads(tiltyard("rescore", run, "--weights", constant, "--json").stdout)
    assert again["changed"] == 0
    assert [each["reward"] for each in again["rollouts"]].count(1.0) == 1


@pytest.mark.slow
async def test_wrong_usage_is_told(
    tiltyard: Callable[..., Any], run: Path, weights: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text("[tests]\nweight = -1\n")
    taken = tmp_path / "taken"
    taken.write_text("mine")
    async with RunStore.create(tmp_path / "old") as store:
        # As a version wrote it that did not keep the weights themselves.
        await store.append(replace(ROLLOUTS[0], versions={"weights": "0123456789abcdef"}))
    old = tmp_path / "old"
    for arguments, words in (
        ((run, "--weights", bad), "tests.weight"),
        ((run, "--weights", tmp_path / "none.toml"), "none.toml"),
        ((tmp_path / "nowhere", "--weights", weights), "nowhere"),
        ((run, "--weights", weights, "--out", taken), "exists already"),
        ((old,), "--weights"),
    ):
        done = tiltyard("rescore", *arguments)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
    assert taken.read_text() == "mine"


async def test_no_run_named_means_the_newest(
    run: Path, weights: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await rescore(None, weights, None, Settings(runs_dir=run.parent), as_json=True)
    assert (code, json.loads(capsys.readouterr().out)["changed"]) == (0, 2)
    with pytest.raises(UsageError, match=r"there is no run.*name as RUN what"):
        await rescore(None, weights, None, Settings(runs_dir=tmp_path / "none"), as_json=True)


async def test_a_file_that_is_there_is_never_written_over(run: Path, weights: Path) -> None:
    before = contents(run)
    with pytest.raises(UsageError, match="exists already"):
        await rescore(run, weights, run / "index.sqlite", Settings(), as_json=True)
    assert contents(run) == before


@pytest.mark.slow
async def test_without_weights_those_of_the_record_hold_for_whole_groups(
    tiltyard: Callable[..., Any], tmp_path: Path, weights: Path
) -> None:
    styled = read_weights(weights).default
    async with RunStore.create(tmp_path / "run") as store:
        for each in ROLLOUTS:
            reward = reward_of(each.verdict, styled)
            await store.append(replace(each, weights=styled, reward=reward))
    done = tiltyard("rescore", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [line["reward"] for line in told["rollouts"]] == pytest.approx(NEW)
    assert {line["weights"] for line in told["rollouts"]} == {styled.digest}


TASKS = tuple(make_task(seed, split=Split.TRAIN) for seed in (3, 99))
GROUPS = st.lists(
    st.lists(some_verdicts(st.sampled_from(Outcome)), min_size=3, max_size=3),
    min_size=len(TASKS),
    max_size=len(TASKS),
)


async def made(
    directory: Path, groups: list[list[Verdict]], weights: Weights
) -> tuple[list[Trajectory], list[Trajectory]]:
    """Makes and records a run of two groups of three with these verdicts: what it returns, and
    what it recorded."""
    of_task = {task.id: verdicts for task, verdicts in zip(TASKS, groups, strict=True)}
    recorded: list[Trajectory] = []

    async def judge(task: Task, submission: Submission) -> Verdict:
        return of_task[task.id][int(submission.files[f"{task.module}.py"])]

    no_pool: Any = None  # single-turn rollouts need no sandbox of their own
    setting = Setting(
        policy=Replies(lambda prompt: str(prompt.sample)),
        read_answer=whole_module,
        pool=no_pool,
        spec=SandboxSpec(),
        verify=verify_each(judge),
        turns_max=1,
        weighting=Weighting(default=weights),
    )
    async with RunStore.create(directory) as store:

        async def record(trajectory: Trajectory) -> None:
            recorded.append(trajectory)
            await store.append(trajectory)

        planned = attempts(TASKS, samples=3, seed=0)
        return await run_attempts(planned, setting, concurrency=6, record=record), recorded


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(GROUPS, some_weights())
def test_a_run_gives_its_learner_the_rewards_that_rescore_gives(
    groups: list[list[Verdict]], weights: Weights
) -> None:
    async def both(directory: Path) -> None:
        live, recorded = await made(directory / "run", groups, weights)
        out = directory / "rewards.jsonl"
        assert await rescore(directory / "run", None, out, Settings(), as_json=True) == 0
        again = {line["rollout"]: line for line in map(json.loads, out.read_text().splitlines())}
        assert {each.id: each.reward.value for each in live} == {
            rollout: line["reward"] for rollout, line in again.items()
        }
        assert {each.id: each.reward.why for each in live} == {
            rollout: line["why"] for rollout, line in again.items()
        }
        for each in recorded:
            alone = reward_of(each.verdict, weights)
            assert (each.reward.value, again[each.id]["old"]) == (alone.value, alone.value)

    with TemporaryDirectory() as directory:
        asyncio.run(both(Path(directory)))


async def test_what_one_of_a_group_lacks_counts_for_none_that_is_learned_from(
    tmp_path: Path, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    styled = read_weights(weights).default
    assert styled is not None
    verdicts = [each.verdict for each in (ROLLOUTS[0], ROLLOUTS[3], ROLLOUTS[4])]
    live, recorded = await made(tmp_path / "run", [verdicts, [verdicts[0]] * 3], styled)

    assert [each.reward.value for each in live] == pytest.approx([1.0, 1.0, 1.0, 0.9, 0.9, 0.9])
    rewards = {each.id: each.reward.value for each in recorded}
    assert [rewards[each.id] for each in live] == pytest.approx([0.9, 0.9, 1.0, 0.9, 0.9, 0.9])
    for number, told in ((0, True), (3, False)):
        await show(live[number].id, tmp_path / "run", Settings(), mend=False, as_json=False)
        shown = capsys.readouterr().out
        assert "reward 0.9: " in shown
        assert ("in its group reward 1: " in shown) is told
