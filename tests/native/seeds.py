"""First inputs of the fuzzers, made by the host's own encoders, so that they keep in step with it.

`python -m native.seeds DIRECTORY` (with tests/ on the path) writes them: DIRECTORY/TARGET/NAME.
The layout of an input is told in native/fuzz/seam.c and seam_calls.c.
"""

import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from native.test_frames import GOOD
from tiltyard.sandbox.native.create import CreateOrder
from tiltyard.sandbox.native.image import Image, Record, RecordKind
from tiltyard.sandbox.protocol import FrameType, frame, text, texts

IMAGE_REQUEST, SNAPSHOT_REQUEST, DROP_REQUEST, COMPARE_REQUEST = 1, 3, 4, 5
CHOICES = 256
WORLDS = (
    b"",
    bytes(range(0, 200, 3)),  # pieces, short answers, now and then an error
    b"\x00\x01" * 60,  # what is waited for happens
    bytes(100) + b"\x01" * 200,  # the same, once all is set up
)


def supervisor_inputs() -> Iterator[bytes]:
    """The world, and frames."""
    streams = [b"".join(GOOD), *GOOD, b"".join(GOOD * 3), GOOD[0] * 70]
    for number, stream in enumerate(streams):
        world = WORLDS[number % len(WORLDS)]
        yield struct.pack("<H", len(world)) + world + stream


def in_an_ordinary_world(stream: bytes) -> bytes:
    return struct.pack("<H", 0) + stream


def cut_short() -> bytes:
    """A frame that lacks every field of its body."""
    return in_an_ordinary_world(frame(FrameType.SPAWN, 1))


def many_refused() -> bytes:
    """More requests than anything may be kept of."""
    body = bytes(36) + texts(["a"] * 4) + texts([]) + text("/")  # without its last field
    return in_an_ordinary_world(frame(FrameType.SPAWN, 1, body) * 300)


def message(request: bytes, attached: bytes | None = None) -> bytes:
    """One request of the host's, with the content of the file that comes with it."""
    head = struct.pack("<BH", attached is not None, len(request)) + request
    return head if attached is None else head + struct.pack("<H", len(attached)) + attached


def image() -> Image:
    records = [
        Record(kind=RecordKind.DIRECTORY, path="/workspace", mode=0o755),
        Record(kind=RecordKind.FILE, path="/etc/hosts", argument=b"127.0.0.1 localhost\n"),
        Record(kind=RecordKind.OWN_FILE, path="/etc/passwd", argument=b"root:x:0:0\n"),
        Record(kind=RecordKind.LINK, path="/bin", argument=b"usr/bin"),
        Record(kind=RecordKind.BIND, path="/usr", argument=b"/tmp"),
        Record(kind=RecordKind.HIDE, path="/", argument=b"file"),
    ]
    return Image(name="host", environment={}, records=tuple(records))


def order(number: int) -> CreateOrder:
    return CreateOrder(
        id=f"s{number}",
        image=0,
        disk_bytes=1 << 20,
        inodes=256,
        for_zygotes=bool(number & 1),
        lifetime_s=number * 10,
        first_id=2_000_000_000,
        oom_file="/cgroup/own/s1/memory.oom_control",
        pids_file="/cgroup/own/s1/pids.current",
        memory_file="/cgroup/own/s1/memory.usage_in_bytes",
        residue_bytes=1 << 20 if number > 1 else 0,
        there=number == 3,
        unused=["/cgroup/own/s9"] * (number & 1),
        directories=[f"/cgroup/own/s{number}"],
        grouped=[f"/cgroup/own/s{number}"] * (number & 1),
        settings=[(f"/cgroup/own/s{number}/pids.max", "16")],
    )


def launcher_inputs() -> Iterator[bytes]:
    """The world, and messages."""
    request = struct.pack("<II", IMAGE_REQUEST, 5) + b"image" + struct.pack("<I", 0)
    staged = message(request, image().description())
    orders = [message(order(number).encode()) for number in range(4)]
    name = text("work")
    work = [
        message(struct.pack("<I", SNAPSHOT_REQUEST) + name + struct.pack("<I", 1) + text("s0")),
        message(struct.pack("<I", COMPARE_REQUEST) + name + text("s1"), b"x"),
        message(struct.pack("<I", DROP_REQUEST) + name + struct.pack("<I", 1)),
    ]
    made = staged + b"".join(orders)
    for stream in (staged, orders[0], made, made + b"".join(work), made + staged * 2):
        for world in WORLDS:
            yield struct.pack("<H", len(world)) + world + stream
    # At one of these choices, whichever it is by now, the run goes on as a child.
    for place in range(CHOICES):
        world = bytes(place) + b"\x09" + b"\x01" * 100
        yield struct.pack("<H", len(world)) + world + made + b"".join(work)


def write(directory: Path) -> None:
    for target, inputs in (("supervisor", supervisor_inputs()), ("launcher", launcher_inputs())):
        (directory / target).mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(inputs):
            (directory / target / f"seed-{number:03}").write_bytes(content)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
