"""Whatever a kill, a power failure or a bad disk leaves, the next writer mends the run."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from sample_records import sample_trajectory
from tiltyard.core.errors import StoreError
from tiltyard.store import Recovery, RolloutRow, RunReader, RunStore
from tiltyard.store.frames import RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES
from tiltyard.store.recovery import recover
from tiltyard.store.segments import SegmentAppender

SEGMENT = "segments/000001.seg"
INDEX = "index.sqlite"


async def make_run(directory: Path, numbers: Iterable[int]) -> list[RolloutRow]:
    async with RunStore.create(directory) as store:
        for number in numbers:
            await store.append(sample_trajectory(number))
    with RunReader(directory) as reader:
        return list(reader.iter_rows())


async def recovered(directory: Path) -> Recovery:
    async with RunStore.open(directory) as store:
        return store.recovery


async def seeds_after_one_more(directory: Path, number: int) -> list[int]:
    """Go on with the run; the seeds of all records that can then be read."""
    async with RunStore.open(directory) as store:
        assert store.recovery == Recovery()
        await store.append(sample_trajectory(number))
    return seeds(directory)


def seeds(directory: Path) -> list[int]:
    with RunReader(directory) as reader:
        return [one.seed for one in reader.iter_trajectories()]


def cut(directory: Path, size: int) -> None:
    with (directory / SEGMENT).open("r+b") as segment:
        segment.truncate(size)


def flip(directory: Path, offset: int) -> None:
    with (directory / SEGMENT).open("r+b") as segment:
        segment.seek(offset)
        (byte,) = segment.read(1)
        segment.seek(offset)
        segment.write(bytes([byte ^ 0x10]))


@pytest.mark.slow
async def test_a_tail_torn_anywhere_is_cut_off(tmp_path: Path) -> None:
    """The index as a kill leaves it: it does not know the record that was being written."""
    await make_run(tmp_path / "run", [1, 2])
    index = (tmp_path / "run" / INDEX).read_bytes()
    start = (tmp_path / "run" / SEGMENT).stat().st_size
    async with RunStore.open(tmp_path / "run") as store:
        # Short, because opening a run costs several fsyncs and this opens one for each byte.
        await store.append(replace(sample_trajectory(3), steps=(), versions={}))
    whole = (tmp_path / "run" / SEGMENT).read_bytes()
    for end in range(start + 1, len(whole)):
        (tmp_path / "run" / INDEX).write_bytes(index)
        (tmp_path / "run" / SEGMENT).write_bytes(whole[:end])
        opened, recovery = recover(tmp_path / "run")
        opened.close()
        assert recovery == Recovery(torn_bytes=end - start)
        assert (tmp_path / "run" / SEGMENT).read_bytes() == whole[:start]
    assert await seeds_after_one_more(tmp_path / "run", 4) == [1, 2, 4]


async def test_a_record_that_the_index_does_not_know_is_indexed(tmp_path: Path) -> None:
    await make_run(tmp_path / "run", [1, 2])
    index = (tmp_path / "run" / INDEX).read_bytes()
    async with RunStore.open(tmp_path / "run") as store:
        await store.append(sample_trajectory(3))
    (tmp_path / "run" / INDEX).write_bytes(index)
    assert await recovered(tmp_path / "run") == Recovery(reindexed=1)
    assert await seeds_after_one_more(tmp_path / "run", 4) == [1, 2, 3, 4]


async def test_records_lost_in_a_power_failure_leave_the_index(tmp_path: Path) -> None:
    rows = await make_run(tmp_path / "run", [1, 2, 3])
    cut(tmp_path / "run", rows[1].place.offset + 5)
    with RunReader(tmp_path / "run") as reader:
        with pytest.raises(StoreError, match=rf"{SEGMENT} at offset {rows[1].place.offset}"):
            reader.read_row(rows[1])
        assert reader.read_row(rows[0]) == sample_trajectory(1)
    assert await recovered(tmp_path / "run") == Recovery(lost=2, torn_bytes=5)
    assert await seeds_after_one_more(tmp_path / "run", 2) == [1, 2]


async def test_a_missing_segment_is_missed(tmp_path: Path) -> None:
    await make_run(tmp_path / "run", [1, 2, 3])
    (tmp_path / "run" / SEGMENT).unlink()
    with (
        RunReader(tmp_path / "run") as reader,
        pytest.raises(StoreError, match=f"{SEGMENT}.*No such file"),
    ):
        list(reader.iter_trajectories())
    assert await recovered(tmp_path / "run") == Recovery(lost=3)
    assert await seeds_after_one_more(tmp_path / "run", 4) == [4]


@pytest.mark.parametrize("spoiled", [None, b"", b"not a database" * 100, b"SQLite format 3\0" * 99])
async def test_a_spoiled_index_is_made_again(tmp_path: Path, spoiled: bytes | None) -> None:
    before = await make_run(tmp_path / "run", range(20))
    if spoiled is None:
        (tmp_path / "run" / INDEX).unlink()
    else:
        (tmp_path / "run" / INDEX).write_bytes(spoiled)
    with pytest.raises(StoreError, match=r"index of .* is missing or damaged.*--mend"):
        RunReader(tmp_path / "run")
    assert await recovered(tmp_path / "run") == Recovery(reindexed=20, index_remade=True)
    with RunReader(tmp_path / "run") as reader:
        assert list(reader.iter_rows()) == before
    assert await seeds_after_one_more(tmp_path / "run", 20) == list(range(21))


async def test_a_damaged_page_of_the_index_is_noticed_by_the_writer(tmp_path: Path) -> None:
    await make_run(tmp_path / "run", range(200))
    index = bytearray((tmp_path / "run" / INDEX).read_bytes())
    index[4096 + 8 : 3 * 4096] = b"\xff" * (2 * 4096 - 8)
    (tmp_path / "run" / INDEX).write_bytes(index)
    assert await recovered(tmp_path / "run") == Recovery(reindexed=200, index_remade=True)
    assert seeds(tmp_path / "run") == list(range(200))


@pytest.mark.parametrize("within", [0, 9, RECORD_HEADER_BYTES - 1, RECORD_HEADER_BYTES + 30])
async def test_a_damaged_record_costs_only_itself(tmp_path: Path, within: int) -> None:
    rows = await make_run(tmp_path / "run", [1, 2, 3])
    offset = rows[1].place.offset
    flip(tmp_path / "run", offset + within)
    errors: list[StoreError] = []
    with RunReader(tmp_path / "run") as reader:
        read = [one.seed for one in reader.iter_trajectories(on_damage=errors.append)]
        with pytest.raises(StoreError, match=f"'r000002' in .*{SEGMENT} at offset {offset}"):
            reader.read(rows[1].id)
    assert read == [1, 3]
    assert [error.fix for error in errors] == [
        "Restore that file from a copy; the other rollouts can be read."
    ]
    # Made again from the segments, the index has the intact ones and the writer says what is not.
    (tmp_path / "run" / INDEX).unlink()
    recovery = await recovered(tmp_path / "run")
    assert (recovery.reindexed, recovery.torn_bytes, len(recovery.damaged)) == (2, 0, 1)
    assert f"{SEGMENT} at offset {offset}: the record" in recovery.damaged[0]
    assert seeds(tmp_path / "run") == [1, 3]


async def test_a_damaged_segment_header_costs_no_record(tmp_path: Path) -> None:
    await make_run(tmp_path / "run", [1, 2])
    flip(tmp_path / "run", 10)
    assert seeds(tmp_path / "run") == [1, 2]
    async with RunStore.open(tmp_path / "run") as store:
        await store.append(sample_trajectory(3))
    assert seeds(tmp_path / "run") == [1, 2, 3]
    assert (tmp_path / "run/segments/000002.seg").exists()


@pytest.mark.parametrize("size", range(SEGMENT_HEADER_BYTES))
async def test_a_kill_while_a_segment_begins_leaves_nothing(tmp_path: Path, size: int) -> None:
    await make_run(tmp_path / "run", [])
    cut(tmp_path / "run", size)
    assert await recovered(tmp_path / "run") == Recovery(torn_bytes=size)
    assert await seeds_after_one_more(tmp_path / "run", 1) == [1]


async def test_a_kill_while_a_run_is_created_leaves_an_empty_run(tmp_path: Path) -> None:
    (tmp_path / "run" / "segments").mkdir(parents=True)
    (tmp_path / "run" / INDEX).touch()
    assert await recovered(tmp_path / "run") == Recovery()
    assert await seeds_after_one_more(tmp_path / "run", 1) == [1]


async def test_records_of_a_later_version_are_kept_and_named(tmp_path: Path) -> None:
    await make_run(tmp_path / "run", [1])
    target = tmp_path / "run"
    later = b"what only a later version reads"
    append_raw(target, later)
    recovery = await recovered(target)
    assert (recovery.reindexed, recovery.torn_bytes, len(recovery.damaged)) == (0, 0, 1)
    async with RunStore.open(target) as store:
        assert store.recovery == recovery
        await store.append(sample_trajectory(2))
    assert seeds(target) == [1, 2]
    assert later in (target / SEGMENT).read_bytes()
    assert await recovered(target) == Recovery()


def append_raw(directory: Path, payload: bytes) -> None:
    segment = SegmentAppender.reopen(directory, 1)
    segment.append(segment.frame(payload))
    segment.close()


async def test_a_reader_changes_nothing(tmp_path: Path) -> None:
    """Not even where a writer would mend."""
    rows = await make_run(tmp_path / "run", [1, 2])
    cut(tmp_path / "run", rows[1].place.offset + RECORD_HEADER_BYTES + 7)

    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (tmp_path / "run").rglob("*.s*[eg]")}

    before = state()
    assert len(before) == 2
    with RunReader(tmp_path / "run") as reader:
        assert len(list(reader.iter_rows())) == 2
        assert reader.read_row(rows[0]) == sample_trajectory(1)
        with pytest.raises(StoreError, match="cut off: 7 of"):
            reader.read_row(rows[1])
    assert state() == before
