"""A whole sandbox under hostile bytes. The fuzzers (test_fuzz.py) look into the programs alone."""

import asyncio
import random
import struct
from collections.abc import Iterator

import pytest

from tiltyard.core.execution import MIB, Limit, Limits, Pty, SandboxSpec
from tiltyard.sandbox.file_frames import Head, RecordKind, content_record, head_record
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.protocol import (
    BODY_BYTES_MAX,
    FrameType,
    ProgramLimits,
    SpawnFlag,
    frame,
    limits_field,
    signal_body,
    size_body,
    spawn_body,
    text,
    texts,
    variables_field,
)

LIMITS = ProgramLimits(
    wall_s=1.0, cpu_s=1, output_bytes_max=1000, open_files=20, processes=20, address_space_bytes=0
)
TREE = b"".join(
    (
        head_record(Head(kind=RecordKind.DIRECTORY, path="d", mode=0o755)),
        head_record(Head(kind=RecordKind.LINK, path="l", mode=0o777, target="d")),
        head_record(Head(kind=RecordKind.FILE, path="d/f", mode=0o644, size_bytes=8)),
        content_record(b"half"),
    )
)
GOOD = [
    frame(
        FrameType.SPAWN,
        1,
        spawn_body(
            argv=["true", "a"],
            variables=variables_field({"A": "b"}),
            cwd="/",
            stdin=b"in",
            limits=LIMITS,
            flags=SpawnFlag.CHANNEL,
        ),
    ),
    frame(
        FrameType.SPAWN,
        8,
        spawn_body(
            argv=["cat"],
            variables=variables_field({}),
            cwd="/",
            stdin=b"",
            limits=LIMITS,
            flags=SpawnFlag.NONE,
            pty=Pty(),
            user="nobody",
            idle_s=0.5,
        ),
    ),
    frame(
        FrameType.SPAWN,
        9,
        spawn_body(
            argv=["cat"],
            variables=variables_field({}),
            cwd="/",
            stdin=b"",
            limits=LIMITS,
            flags=SpawnFlag.NONE,
            streamed=True,
        ),
    ),
    *(frame(FrameType.INPUT, id_, b"input") for id_ in (8, 9)),
    *(frame(FrameType.CLOSE_INPUT, id_) for id_ in (8, 9)),
    frame(FrameType.SIGNAL, 8, signal_body(1, whole_tree=True)),
    frame(FrameType.RESIZE, 8, size_body(Pty(rows=1, columns=2))),
    frame(FrameType.FORK, 2, struct.pack("<I", 1) + limits_field(LIMITS)),
    frame(FrameType.INPUT, 1, b"input"),
    frame(FrameType.KILL, 1),
    frame(FrameType.WRITE, 3, struct.pack("<II", 0o644, 0) + text("/tmp/x") + text(b"content")),
    frame(FrameType.READ, 4, struct.pack("<QI", 0, 100) + text("/tmp/x")),
    frame(FrameType.LIST, 5, struct.pack("<I", 1) + text("/tmp")),
    frame(FrameType.PING, 6),
    frame(FrameType.PING, 7, texts(["a", "b", ""])),
    frame(FrameType.STAT, 8, struct.pack("<I", 1) + text("/tmp")),
    frame(FrameType.MKDIR, 9, struct.pack("<II", 0o755, 1) + text("/tmp/d/e")),
    frame(FrameType.RENAME, 10, struct.pack("<I", 1) + text("/tmp/d") + text("/tmp/c")),
    frame(FrameType.CHMOD, 11, struct.pack("<I", 0o600) + text("/tmp/x")),
    frame(FrameType.SYMLINK, 12, text("x") + text("/tmp/l")),
    frame(FrameType.TREE_READ, 13, struct.pack("<I", 2) + text("/tmp")),
    frame(FrameType.TREE_WRITE, 14, struct.pack("<II", 3, 0) + text("/tmp/tree") + TREE),
    frame(FrameType.TREE_PUT, 15, struct.pack("<II", 3, 1) + content_record(b"rest")),
    frame(FrameType.MORE, 16, struct.pack("<I", 2)),
    frame(FrameType.REMOVE, 17, struct.pack("<II", 0, 1) + text("/tmp/tree")),
    frame(FrameType.END, 18, struct.pack("<I", 3)),
]


def mutated(chance: random.Random) -> bytes:
    """A few good frames with some of their bytes changed, dropped or doubled, or plain noise."""
    if chance.random() < 0.2:
        return chance.randbytes(chance.randrange(200))
    stream = bytearray(b"".join(chance.choices(GOOD, k=chance.randrange(1, 6))))
    for _ in range(chance.randrange(4)):
        at = chance.randrange(len(stream))
        match chance.randrange(5):
            case 0:
                stream[at] = chance.randrange(256)
            case 1:
                del stream[at : at + chance.randrange(1, 9)]
            case 2:
                stream[at:at] = chance.randbytes(chance.randrange(1, 9))
            case 3:
                stream[at : at + 4] = chance.choice(
                    [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\x10\0"]
                )
            case _:
                stream *= 2
        if not stream:
            break
    return bytes(stream)


def edges() -> Iterator[bytes]:
    yield b""
    for length in (0, 1, 11, 12, BODY_BYTES_MAX - 1, BODY_BYTES_MAX, BODY_BYTES_MAX + 1, 2**32 - 1):
        yield struct.pack("<IBBHI", length, FrameType.WRITE, 0, 0, 1)
    yield frame(FrameType.WRITE, 1, b"\0" * BODY_BYTES_MAX)
    yield frame(FrameType.SPAWN, 1, b"\xff" * BODY_BYTES_MAX)
    yield b"".join(GOOD) * 50


@pytest.mark.slow
@pytest.mark.sandbox
async def test_no_bytes_break_a_supervisor_but_by_ending_it() -> None:
    """Whatever the host might send, a sandbox answers or ends; it neither hangs nor harms."""
    chance = random.Random(21)  # noqa: S311 - which bytes
    spec = SandboxSpec(
        limits=Limits(memory_bytes=64 * MIB, pids=16, disk_bytes=4 * MIB),
        allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}),
    )
    streams = [*edges(), *(mutated(chance) for _ in range(60))]
    ended = 0
    async with NativeProvider() as provider:
        for stream in streams:
            sandbox = await provider.create(spec)
            transport = sandbox._supervisor._transport
            assert transport is not None
            transport.write(stream)
            # A frame that was only begun swallows what comes after it: no answer is right then.
            transport.write_eof()
            try:
                async with asyncio.timeout(10):
                    await sandbox._supervisor.lost
                ended += 1
            except TimeoutError:
                pytest.fail(f"a supervisor neither answers nor ends: {stream[:200]!r}")
            await sandbox.close()
        whole = await provider.create(spec)
        await whole.ping()
        await whole.close()
    assert ended == len(streams)
