"""A run as its writer and its readers see it, on one machine that does not fail."""

import asyncio
import hashlib
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sample_records import sample_trajectory
from tiltyard.core.errors import StoreError, UsageError
from tiltyard.core.ids import GroupId, RolloutId, TaskId
from tiltyard.core.trajectory import Trajectory
from tiltyard.core.verdict import Outcome
from tiltyard.store import Recovery, RowFilter, RunReader, RunStore

Program = Callable[..., "subprocess.Popen[str]"]


async def record(store: RunStore, *numbers: int) -> None:
    """Append these samples together, as rollouts that end at the same time do."""
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            group.create_task(store.append(sample_trajectory(number)))


def contents(directory: Path) -> dict[str, str]:
    """A digest of every file that holds records or rows."""
    return {
        str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not path.name.endswith("-shm")
    }


async def test_what_was_appended_is_read_back(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        await record(store, *range(300))
        with RunReader(tmp_path / "run") as reader:
            assert {one.id: one for one in reader.iter_trajectories()} == {
                sample_trajectory(n).id: sample_trajectory(n) for n in range(300)
            }
    with RunReader(tmp_path / "run") as reader:
        assert reader.read(RolloutId("r000123")) == sample_trajectory(123)


async def test_rows_say_what_the_records_say(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        await store.append(sample_trajectory(6))
        await store.append(sample_trajectory(5))
    with RunReader(tmp_path / "run") as reader:
        first, second = reader.iter_rows()
    assert (first.id, first.group, first.task_id, first.family) == (
        "r000006",
        "g1",
        "task-0",
        "sums",
    )
    assert (first.outcome, first.reward, first.passed, first.checks) == (Outcome.GRADED, 1.0, 1, 1)
    assert (first.started_unix_s, first.wall_s) == (1_700_000_006.125, 1.5)
    assert (second.outcome, second.reward, second.passed) == (Outcome.INFRA_FAULT, None, 0)
    assert second.place.offset == first.place.offset + first.place.length_bytes


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (RowFilter(), range(12)),
        (RowFilter(task_id=TaskId("task-1")), (1, 4, 7, 10)),
        (RowFilter(group=GroupId("g2")), (8, 9, 10, 11)),
        (RowFilter(family="lists", outcome=Outcome.INFRA_FAULT), (5,)),
        (RowFilter(family="none"), ()),
    ],
)
async def test_rows_can_be_chosen(
    tmp_path: Path, wanted: RowFilter, expected: tuple[int, ...]
) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        for number in range(12):
            await store.append(sample_trajectory(number))
    with RunReader(tmp_path / "run") as reader:
        ids = [row.id for row in reader.iter_rows(wanted)]
    assert ids == [sample_trajectory(number).id for number in expected]


@pytest.mark.slow
async def test_more_rows_than_a_page_come_once_each_while_more_are_recorded(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        await record(store, *range(1100))
        with RunReader(tmp_path / "run") as reader:
            rows = reader.iter_rows()
            ids = [next(rows).id]
            await record(store, *range(1100, 1200))
            ids += [row.id for row in rows]
    assert sorted(ids) == [sample_trajectory(number).id for number in range(1200)]


async def test_an_id_is_recorded_once(tmp_path: Path) -> None:
    changed = replace(sample_trajectory(1), seed=99)
    async with RunStore.create(tmp_path / "run") as store:
        await record(store, 1, 2)
        with pytest.raises(StoreError, match=r"'r000001' is already recorded"):
            await store.append(changed)
        together = await asyncio.wait_for(outcomes(store, sample_trajectory(3), changed), 10)
        assert [type(outcome) for outcome in together] == [type(None), StoreError]
    with RunReader(tmp_path / "run") as reader:
        assert [one.seed for one in reader.iter_trajectories()] == [1, 2, 3]


async def outcomes(store: RunStore, *trajectories: Trajectory) -> list[StoreError | None]:
    async def one(trajectory: Trajectory) -> StoreError | None:
        try:
            await store.append(trajectory)
        except StoreError as error:
            return error
        return None

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(trajectory)) for trajectory in trajectories]
    return [task.result() for task in tasks]


async def test_a_bad_record_is_refused_alone(tmp_path: Path) -> None:
    bad = replace(sample_trajectory(1), seed="one")  # type: ignore[arg-type]
    worse = replace(sample_trajectory(2), id=RolloutId("\ud800"))
    async with RunStore.create(tmp_path / "run") as store:
        results = await outcomes(store, sample_trajectory(0), bad, worse, sample_trajectory(3))
    assert [result is None for result in results] == [True, False, False, True]
    assert "trajectory.seed" in str(results[1])
    with RunReader(tmp_path / "run") as reader:
        assert [one.id for one in reader.iter_trajectories()] == ["r000000", "r000003"]


async def test_text_that_is_not_unicode_is_kept_and_indexed(tmp_path: Path) -> None:
    odd = replace(sample_trajectory(1), family="bad \udcff text")
    async with RunStore.create(tmp_path / "run") as store:
        await store.append(odd)
    with RunReader(tmp_path / "run") as reader:
        (row,) = reader.iter_rows(RowFilter(family="bad \udcff text"))
        assert row.family == "bad \\udcff text"
        assert reader.read_row(row) == odd


async def test_closing_finishes_what_was_handed_in_and_refuses_the_rest(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path / "run")
    async with asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(store.append(sample_trajectory(number)))
        await asyncio.sleep(0)
        group.create_task(store.close())
        group.create_task(store.close())
    await store.close()
    with pytest.raises(StoreError, match=r"r000077.*was closed"):
        await store.append(sample_trajectory(77))
    with RunReader(tmp_path / "run") as reader:
        assert sum(1 for _ in reader.iter_trajectories()) == 50


async def test_a_cancelled_append_disturbs_nobody(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        for number in range(0, 40, 2):
            async with asyncio.TaskGroup() as group:
                cancelled = group.create_task(store.append(sample_trajectory(number)))
                await asyncio.sleep(0)
                cancelled.cancel()
            assert cancelled.cancelled()
            await store.append(sample_trajectory(number + 1))
    with RunReader(tmp_path / "run") as reader:
        odd = [one for one in reader.iter_trajectories() if one.seed % 2]
    assert odd == [sample_trajectory(number) for number in range(1, 41, 2)]


async def test_a_run_goes_on_in_another_session(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        await record(store, 1)
    async with RunStore.open(tmp_path / "run") as store:
        assert store.recovery == Recovery()
        await record(store, 2)
    with RunReader(tmp_path / "run") as reader:
        assert [one.seed for one in reader.iter_trajectories()] == [1, 2]
    assert sorted(contents(tmp_path / "run")) == ["index.sqlite", "lock", "segments/000001.seg"]


async def test_full_segments_are_followed_by_new_ones(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "run", segment_bytes_max=2000) as store:
        for number in range(30):
            await store.append(sample_trajectory(number))
    segments = [name for name in contents(tmp_path / "run") if name.endswith(".seg")]
    assert len(segments) > 3
    async with RunStore.open(tmp_path / "run", segment_bytes_max=2000) as store:
        assert store.recovery == Recovery()
        await record(store, 30)
    with RunReader(tmp_path / "run") as reader:
        assert [one.seed for one in reader.iter_trajectories()] == list(range(31))


async def test_create_refuses_a_run_and_open_refuses_anything_else(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "run"):
        pass
    with pytest.raises(UsageError, match="already holds a run"):
        RunStore.create(tmp_path / "run")
    for opening in (RunStore.open, RunReader):
        with pytest.raises(UsageError, match="is not a run directory"):
            opening(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(
        UsageError, match="file/below cannot be a run directory: a file is in the way"
    ):
        RunStore.create(tmp_path / "file" / "below")


async def test_one_writer_at_a_time(tmp_path: Path) -> None:
    async with RunStore.create(tmp_path / "run"):
        with pytest.raises(StoreError, match=f"being written by process {os.getpid()}"):
            RunStore.open(tmp_path / "run")
    async with RunStore.open(tmp_path / "run"):
        pass


@pytest.mark.slow
def test_one_writer_at_a_time_among_processes(tmp_path: Path, program: Program) -> None:
    writer = program("write", tmp_path / "run", stdin=subprocess.PIPE)
    assert writer.stdout
    assert writer.stdout.readline() == "r000000\n"
    with pytest.raises(StoreError, match=f"being written by process {writer.pid}"):
        RunStore.open(tmp_path / "run")
    writer.kill()
    writer.wait()
    store = RunStore.open(tmp_path / "run")
    asyncio.run(store.close())


@pytest.mark.slow
async def test_another_process_reads_what_is_acknowledged(tmp_path: Path, program: Program) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        await record(store, 0)
        reader = program("follow", tmp_path / "run", stdin=subprocess.PIPE)
        assert reader.stdin
        assert reader.stdout
        for number in range(1, 30):
            await record(store, number)
            reader.stdin.write(f"{sample_trajectory(number).id}\n")
            reader.stdin.flush()
            line = await asyncio.to_thread(reader.stdout.readline)
            assert line == f"{number + 1} {number}\n"
        reader.stdin.close()
        assert reader.wait() == 0


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("r000012", "r000012"), ("r00003", "r000030"), ("abc", "abc"), ("abcd", "abcde")],
)
async def test_a_unique_prefix_names_a_rollout(tmp_path: Path, prefix: str, expected: str) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        await record(store, 10, 12, 30)
        for name in ("abc", "abcde"):
            await store.append(replace(sample_trajectory(1), id=RolloutId(name)))
    with RunReader(tmp_path / "run") as reader:
        assert reader.resolve(prefix) == expected


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ("r00001", "begins with 'r00001': r000010, r000012. Fix: Give more"),
        ("r", "r000010, r000012, r000020, r000021, r000022 and more"),
        ("x", "No rollout 'x' is recorded"),
        ("R000010", "No rollout"),
        ("%", "No rollout"),
        ("\udcff", "No rollout"),
    ],
)
async def test_any_other_prefix_is_explained(tmp_path: Path, prefix: str, message: str) -> None:
    async with RunStore.create(tmp_path / "run") as store:
        await record(store, 10, 12, 20, 21, 22, 30)
    with RunReader(tmp_path / "run") as reader:
        with pytest.raises(UsageError, match=message):
            reader.resolve(prefix)
        with pytest.raises(UsageError, match="No rollout"):
            reader.read(RolloutId(prefix))
