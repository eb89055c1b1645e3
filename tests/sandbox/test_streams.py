"""What is kept of a stream, and bytes taken from a channel in exact amounts."""

import asyncio

import pytest
from hypothesis import given, strategies as st

from tiltyard.core.execution import Chunk, Stream
from tiltyard.sandbox.protocol import INPUT_WINDOW_BYTES
from tiltyard.sandbox.streams import (
    HEAD_BYTES_MAX,
    PIECE_BYTES,
    READER_BYTES_MAX,
    TAIL_BYTES_MAX,
    Capture,
    ChannelClosed,
    ChannelInbox,
    Chunks,
    InputWindow,
)

BLOCKS = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, HEAD_BYTES_MAX + 9)).map(
        lambda pair: bytes([pair[0]]) * pair[1]
    ),
    max_size=8,
)


@given(blocks=BLOCKS)
def test_head_and_tail_are_the_streams_own(blocks: list[bytes]) -> None:
    capture, whole = Capture(), b"".join(blocks)
    for block in blocks:
        capture.feed(block)
    kept = capture.result()
    assert kept.total_bytes == len(whole)
    if kept.truncated:
        assert len(kept.head) == HEAD_BYTES_MAX
        assert len(kept.tail) == TAIL_BYTES_MAX
        assert whole.startswith(kept.head)
        assert whole.endswith(kept.tail)
    else:
        assert kept.head + kept.tail == whole


def test_memory_is_bounded_however_small_the_blocks() -> None:
    capture = Capture()
    for _ in range(40):
        capture.feed(b"x" * (TAIL_BYTES_MAX - 1))
    kept = capture.result()
    assert len(kept.head) + len(kept.tail) == HEAD_BYTES_MAX + TAIL_BYTES_MAX
    assert "bytes left out" in kept.text


def test_garbage_is_text_all_the_same() -> None:
    capture = Capture()
    capture.feed(b"\xff\xfe caf\xc3\xa9 \x00")
    assert capture.result().text == "\ufffd\ufffd café \x00"


@given(blocks=st.lists(st.binary(max_size=50), max_size=10), sizes=st.lists(st.integers(0, 40)))
def test_a_channel_gives_exact_amounts(blocks: list[bytes], sizes: list[int]) -> None:
    async def take_all() -> None:
        inbox, whole = ChannelInbox(), b"".join(blocks)
        for block in blocks:
            inbox.feed(block)
        inbox.close()
        for size in sizes:
            if size > len(whole):
                with pytest.raises(ChannelClosed):
                    await inbox.take(size)
                return
            assert await inbox.take(size) == whole[:size]
            whole = whole[size:]

    asyncio.run(take_all())


async def test_taking_waits_for_what_is_missing() -> None:
    inbox = ChannelInbox()
    async with asyncio.TaskGroup() as group:
        taking = group.create_task(inbox.take(4))
        await asyncio.sleep(0)
        inbox.feed(b"ab")
        await asyncio.sleep(0)
        assert not taking.done()
        inbox.feed(b"cdef")
    assert taking.result() == b"abcd"
    assert await inbox.take(2) == b"ef"


async def test_a_closed_channel_ends_the_waiting() -> None:
    inbox = ChannelInbox()
    inbox.feed(b"ab")
    asyncio.get_running_loop().call_soon(inbox.close)
    with pytest.raises(ChannelClosed):
        await inbox.take(3)
    assert await inbox.take(2) == b"ab", "what did come can still be taken"


WRITTEN = st.lists(
    st.tuples(st.sampled_from(Stream), st.integers(0, 255), st.sampled_from([1, 100, 70_000])),
    max_size=30,
)


async def read_out(reader: Chunks) -> dict[Stream, list[Chunk]]:
    read: dict[Stream, list[Chunk]] = {stream: [] for stream in Stream}
    async for chunk in reader:
        read[chunk.stream].append(chunk)
    return read


@given(written=WRITTEN, turns=st.sets(st.integers(0, 30)))
def test_a_reader_reads_all_or_is_told_how_much_is_missing(
    written: list[tuple[Stream, int, int]], turns: set[int]
) -> None:
    async def check() -> None:
        reader = Chunks()
        whole = {stream: bytearray() for stream in Stream}
        early: list[Chunk] = []
        for number, (stream, letter, size) in enumerate(written):
            block = bytes([letter]) * size
            whole[stream] += block
            reader.feed(stream, block)
            if number in turns:
                early.append(await anext(reader))
        reader.close()
        late = await read_out(reader)
        for stream in Stream:
            place = 0
            for chunk in (*(each for each in early if each.stream is stream), *late[stream]):
                place += chunk.skipped_bytes
                assert whole[stream][place : place + len(chunk.data)] == chunk.data
                place += len(chunk.data)
            assert place == len(whole[stream])

    asyncio.run(check())


async def test_what_waits_for_a_reader_is_bounded_however_small() -> None:
    reader = Chunks()
    count = 3 * READER_BYTES_MAX // PIECE_BYTES
    for number in range(count):
        reader.feed(list(Stream)[number % 2], b"x")
    reader.close()
    read = await read_out(reader)
    pieces = sum(map(len, read.values()))
    assert pieces * PIECE_BYTES <= READER_BYTES_MAX
    assert sum(each.skipped_bytes for each in read[Stream.STDOUT]) > 0
    assert (
        sum(len(each.data) + each.skipped_bytes for both in read.values() for each in both) == count
    )


async def test_a_reader_begins_with_what_is_kept() -> None:
    capture, whole = Capture(), bytes(range(256)) * 1000
    capture.feed(whole)
    reader = Chunks()
    reader.begin_with(Stream.STDERR, capture.result())
    reader.feed(Stream.STDERR, b"new")
    reader.close()
    head, tail, new = (await read_out(reader))[Stream.STDERR]
    assert head.data == whole[:HEAD_BYTES_MAX]
    assert tail.data == whole[-TAIL_BYTES_MAX:]
    assert tail.skipped_bytes == len(whole) - HEAD_BYTES_MAX - TAIL_BYTES_MAX
    assert (new.data, new.skipped_bytes) == (b"new", 0)


async def test_a_stream_that_was_missed_to_its_end_is_counted() -> None:
    reader = Chunks()
    reader.feed(Stream.STDERR, b"lost")
    for _ in range(40):
        reader.feed(Stream.STDOUT, b"x" * 65_536)
    reader.close()
    assert [
        (each.data, each.skipped_bytes) for each in (await read_out(reader))[Stream.STDERR]
    ] == [(b"", 4)]


async def test_reading_waits_for_what_comes() -> None:
    reader = Chunks()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read_out(reader))
        for word in (b"a", b"b"):
            await asyncio.sleep(0)
            reader.feed(Stream.STDOUT, word)
        await asyncio.sleep(0)
        assert not reading.done()
        reader.close()
    assert b"".join(each.data for each in reading.result()[Stream.STDOUT]) == b"ab"


async def test_a_writer_gets_the_room_that_there_is() -> None:
    window = InputWindow()
    assert await window.reserve(10) == 10
    assert await window.reserve(INPUT_WINDOW_BYTES) == INPUT_WINDOW_BYTES - 10
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(window.reserve(50))
        await asyncio.sleep(0)
        assert not waiting.done()
        assert window.taken(20)
    assert waiting.result() == 20
    assert not window.taken(INPUT_WINDOW_BYTES + 1), "more than was ever sent"
    async with asyncio.TaskGroup() as group:
        window = InputWindow()
        await window.reserve(INPUT_WINDOW_BYTES)
        waiting = group.create_task(window.reserve(1))
        await asyncio.sleep(0)
        window.close()
    assert waiting.result() == 0
    assert not window.open
