"""What is kept of a stream, and bytes taken from a channel in exact amounts."""

import asyncio

import pytest
from hypothesis import given, strategies as st

from tiltyard.sandbox.streams import (
    HEAD_BYTES_MAX,
    TAIL_BYTES_MAX,
    Capture,
    ChannelClosed,
    ChannelInbox,
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
