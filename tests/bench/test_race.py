"""Races between systems that only count, so nothing here depends on how fast a machine is."""

import asyncio

import pytest

from board import Board
from race import PeerFailed, System, race

SECONDS = 0.003


class Counting:
    """A system that counts what is asked of it."""

    def __init__(self, *, fails_at: int = 0, error: Exception | None = None) -> None:
        self.done = self.settled = self.at_once = self.at_once_max = 0
        self.unsettled_max = 0
        self._fails_at, self._error = fails_at, error

    async def once(self) -> None:
        self.at_once += 1
        self.at_once_max = max(self.at_once_max, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        self.done += 1
        self.unsettled_max = max(self.unsettled_max, self.done - self.settled)
        if self._error is not None and self.done >= self._fails_at:
            raise self._error

    async def settle(self) -> None:
        self.settled = self.done

    def system(self, name: str, *, peer: bool = False) -> System:
        return System(name=name, once=self.once, settle=self.settle, peer=peer)


async def test_every_system_gets_a_row_of_what_it_did() -> None:
    board, ours, theirs = Board(seconds=SECONDS), Counting(), Counting()
    await race(board, "count", [ours.system("us"), theirs.system("them", peer=True)], concurrency=3)
    assert [(row.name, row.peer) for row in board.rows] == [
        ("count/us/c3", False),
        ("count/them/c3", True),
    ]
    for row, system in zip(board.rows, (ours, theirs), strict=True):
        assert row.n == system.done - 1  # the first is not measured
        assert system.at_once_max == 3
        assert 0 < row.p50 <= row.p95 <= row.p99
        assert row.per_s is not None
        assert row.per_s > 0


async def test_a_paced_race_settles_after_every_operation() -> None:
    board, system = Board(seconds=SECONDS), Counting()
    await race(board, "count", [system.system("us")], paced=True)
    assert system.done > 1
    assert system.unsettled_max == 1
    assert [row.name for row in board.rows] == ["count/us"]


async def test_an_unpaced_race_settles_before_the_next_slice() -> None:
    board, system = Board(seconds=SECONDS), Counting()
    await race(board, "count", [system.system("us")], concurrency=2)
    assert system.settled == system.done


@pytest.mark.parametrize("fails_at", [1, 4])
async def test_a_peer_that_fails_is_left_out_aloud(
    fails_at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    board, ours = Board(seconds=SECONDS), Counting()
    theirs = Counting(fails_at=fails_at, error=PeerFailed("no such program"))
    await race(board, "count", [theirs.system("them", peer=True), ours.system("us")], paced=True)
    board.show_tables()
    assert [row.name for row in board.rows] == ["count/us"]
    assert "left out: count/them: no such program" in capsys.readouterr().out


async def test_a_fault_of_ours_is_raised() -> None:
    board, ours = Board(seconds=SECONDS), Counting(error=ValueError("wrong verdict"))
    with pytest.raises(ExceptionGroup) as raised:
        await race(board, "count", [ours.system("us")])
    assert raised.group_contains(ValueError, match="wrong verdict")
    assert board.rows == []


async def test_what_was_measured_before_a_cancellation_is_kept() -> None:
    board, system = Board(seconds=3600.0), Counting()
    enough = asyncio.Event()

    async def once() -> None:
        await system.once()
        if system.done == 5:
            enough.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        racing = group.create_task(
            race(board, "count", [System(name="us", once=once)], concurrency=1)
        )
        group.create_task(_cancel_after(enough, racing))
    assert [(row.name, row.n) for row in board.rows] == [("count/us/c1", 3)]


async def _cancel_after(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    await event.wait()
    task.cancel()


async def test_the_tables_show_ratios_between_ours_and_peers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    board = Board(seconds=1.0)
    board.add("a/us", [2.0], unit="ms", per_s=30.0, peer=False)
    board.add("a/them", [8.0], unit="ms", per_s=20.0, peer=True)
    board.add("a/us/c8", [2.0], unit="ms", per_s=30.0, peer=False)
    board.add("a/them/c8", [8.0], unit="ms", per_s=20.0, peer=True)
    board.show_tables()
    shown = capsys.readouterr().out
    assert "p50 / them" in shown
    assert "0.25" in shown
    assert "per s / them" in shown
    assert "1.50" in shown
