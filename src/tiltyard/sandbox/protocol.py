"""The framed protocol spoken with a sandbox's supervisor, host side. Pure: bytes in, values out.

A frame is `u32 body length | u8 type | u8 flags | u16 zero | u32 id | body`, little-endian; the
whole description is in native/protocol.h, and the two change together. What arrives here comes
from tiltyard-init, which is ours, but out of a place where hostile code runs; so a frame that
breaks the protocol raises `ProtocolError` and the sandbox is given up.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from tiltyard.core.errors import SandboxDied
from tiltyard.core.execution import Pty

VERSION = 1
CHUNK_BYTES_MAX = 1024 * 1024
BODY_BYTES_MAX = CHUNK_BYTES_MAX + 65_536
EXECUTIONS_MAX = 64
"""How many a supervisor runs at once, zygotes included; the same in native/executions.h."""
INPUT_WINDOW_BYTES = 64 * 1024
"""Of a standard input, no more than this may be sent that TAKEN has not answered."""
_HEADER = struct.Struct("<IBBHI")
_EXIT = struct.Struct("<iIQQQQQQQQI")
_LIMITS = struct.Struct("<IIQIIQ")
_U32 = struct.Struct("<I")


class ProtocolError(SandboxDied):
    """The supervisor's stream is not the protocol. The sandbox is lost."""


class FrameType(IntEnum):
    """Types of frames; below 64 from the host, above from the supervisor."""

    SPAWN = 1
    FORK = 2
    INPUT = 3
    KILL = 4
    WRITE = 5
    READ = 6
    LIST = 7
    PING = 8
    CLOSE_INPUT = 9
    SIGNAL = 10
    RESIZE = 11
    STAT = 16
    MKDIR = 17
    RENAME = 18
    CHMOD = 19
    SYMLINK = 20
    REMOVE = 21
    TREE_READ = 22
    TREE_WRITE = 23
    TREE_PUT = 24
    MORE = 25
    END = 26
    PAUSE = 40
    RESUME = 41
    RELEASE = 42
    HELLO = 64
    STDOUT = 66
    STDERR = 67
    CHANNEL = 68
    EXIT = 69
    DONE = 70
    ERROR = 71
    BYTES = 72
    ENTRIES = 73
    PONG = 74
    TAKEN = 75
    STATUS = 80
    RECORDS = 81
    REMOVED = 82


class SpawnFlag(IntFlag):
    """How a program is started."""

    NONE = 0
    CHANNEL = 1
    ZYGOTE = 2
    STREAM = 4
    PTY = 8
    USER = 16
    IDLE = 32


class ExitFlag(IntFlag):
    """Why the supervisor ended an execution, when it did."""

    NONE = 0
    WALL = 1
    OUTPUT = 2
    KILLED = 4
    NOT_STARTED = 8
    DISK_FULL = 16
    INPUT = 32
    ZYGOTE_DIED = 64
    IDLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One received frame."""

    type: FrameType
    flags: int
    id: int
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramLimits:
    """Limits of one execution, as the supervisor applies them. Zero means none where noted."""

    wall_s: float
    """0: none."""
    cpu_s: int
    """0: none."""
    output_bytes_max: int
    open_files: int
    processes: int
    address_space_bytes: int = 0
    """0: none; used where no cgroup holds the memory limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawExit:
    """The facts of an execution's end. What they mean is decided in `ending`."""

    status: int
    """A wait status, or an errno with `NOT_STARTED`."""
    flags: ExitFlag
    wall_s: float
    cpu_s: float
    memory_peak_bytes: int
    """Largest resident size of one process, by getrusage."""
    stdout_bytes: int
    stderr_bytes: int
    call: str
    io_read_bytes: int = 0
    """From real disks, by the main process and those that it waited for; so is what was written."""
    io_written_bytes: int = 0
    group: int = 0
    """The number of its own cgroup below the sandbox's; 0: it had none."""


def frame(type_: FrameType, id_: int, body: bytes = b"", flags: int = 0) -> bytes:
    """Encodes one frame."""
    return _HEADER.pack(len(body), type_, flags, 0, id_) + body


def text(value: str | bytes) -> bytes:
    """Encodes a string field."""
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    return _U32.pack(len(raw)) + raw


def texts(values: Sequence[str]) -> bytes:
    """Encodes a list of strings."""
    return _U32.pack(len(values)) + b"".join(map(text, values))


def variables_field(variables: Mapping[str, str]) -> bytes:
    """Encodes the environment that SPAWN carries. Raises `ValueError` for a NUL byte."""
    lines = [f"{name}={value}" for name, value in variables.items()]
    if any("\0" in line for line in lines):
        raise ValueError("an environment variable must not hold a NUL byte")
    return texts(lines)


def milliseconds(time_s: float) -> int:
    """A time limit as the supervisor takes it; 0, which is none there, stays 0."""
    return 0 if time_s == 0 else max(1, round(time_s * 1000))


def limits_field(limits: ProgramLimits) -> bytes:
    """Encodes the limits that SPAWN and FORK carry."""
    return _LIMITS.pack(
        milliseconds(limits.wall_s),
        limits.cpu_s,
        limits.output_bytes_max,
        limits.open_files,
        limits.processes,
        limits.address_space_bytes,
    )


def spawn_body(
    *,
    argv: Sequence[str],
    variables: bytes,
    cwd: str,
    stdin: bytes,
    limits: ProgramLimits,
    flags: SpawnFlag,
    streamed: bool = False,
    pty: Pty | None = None,
    user: str = "",
    idle_s: float = 0.0,
) -> bytes:
    """Encodes the body of SPAWN. Raises `ValueError` when it would not fit into a frame.

    `variables` is what `variables_field` made. `streamed` leaves standard input to INPUT frames;
    `pty` None: no terminal; `user` empty: the sandbox's root; `idle_s` 0: it may be silent for
    ever.
    """
    options = b""
    if streamed:
        flags |= SpawnFlag.STREAM
    if pty is not None:
        flags |= SpawnFlag.PTY
        options += size_body(pty)
    if user:
        flags |= SpawnFlag.USER
        options += text(user)
    if idle_s:
        flags |= SpawnFlag.IDLE
        options += _U32.pack(milliseconds(idle_s))
    body = b"".join(
        (
            _U32.pack(flags),
            limits_field(limits),
            texts(argv),
            variables,
            text(cwd),
            text(stdin),
            options,
        )
    )
    if len(body) > BODY_BYTES_MAX:
        raise ValueError(f"arguments, environment and stdin have {len(body)} bytes together")
    return body


def signal_body(number: int, *, whole_tree: bool) -> bytes:
    """Encodes the body of SIGNAL."""
    return struct.pack("<II", number, whole_tree)


def size_body(size: Pty) -> bytes:
    """Encodes the body of RESIZE."""
    return struct.pack("<II", size.rows, size.columns)


class FrameReader:
    """Cuts a byte stream into frames. Holds at most one frame and one received block."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, block: bytes) -> Iterator[Frame]:
        """Takes a block as received; yields every frame that is whole now.

        Raises `ProtocolError` at the first byte that cannot be one.
        """
        buffer = self._buffer
        buffer += block
        at = 0
        try:
            while len(buffer) - at >= _HEADER.size:
                length, type_, flags, zero, id_ = _HEADER.unpack_from(buffer, at)
                if length > BODY_BYTES_MAX or zero:
                    raise ProtocolError(f"frame of {length} bytes from the supervisor")
                end = at + _HEADER.size + length
                if end > len(buffer):
                    return
                try:
                    known = FrameType(type_)
                except ValueError:
                    raise ProtocolError(f"frame of unknown type {type_}") from None
                body = bytes(buffer[at + _HEADER.size : end])
                at = end
                yield Frame(type=known, flags=flags, id=id_, body=body)
        finally:
            del buffer[:at]


def parse_exit(body: bytes) -> RawExit:
    """Decodes the body of EXIT."""
    try:
        status, flags, wall, user, system, peak, out, err, read, written, group = _EXIT.unpack_from(
            body
        )
        call, _ = take_text(body, _EXIT.size)
    except struct.error as error:
        raise ProtocolError(f"malformed EXIT: {error}") from None
    return RawExit(
        status=status,
        flags=ExitFlag(flags),
        wall_s=wall / 1e6,
        cpu_s=(user + system) / 1e6,
        memory_peak_bytes=peak * 1024,
        stdout_bytes=out,
        stderr_bytes=err,
        io_read_bytes=read,
        io_written_bytes=written,
        group=group,
        call=call.decode("utf-8", "replace"),
    )


def parse_error(body: bytes) -> tuple[int, str]:
    """Decodes the body of ERROR into errno and the name of the failing call."""
    try:
        (errno,) = struct.unpack_from("<i", body)
        call, _ = take_text(body, 4)
    except struct.error as error:
        raise ProtocolError(f"malformed ERROR: {error}") from None
    return errno, call.decode("utf-8", "replace")


def parse_u32(body: bytes) -> int:
    """Decodes a body that is one number."""
    if len(body) != 4:
        raise ProtocolError(f"expected 4 bytes, got {len(body)}")
    return int.from_bytes(body, "little")


def take_text(body: bytes, at: int) -> tuple[bytes, int]:
    """Decodes the string field at `at`: its bytes, and where it ends.

    Raises `ProtocolError` or `struct.error` when it does not fit.
    """
    (length,) = struct.unpack_from("<I", body, at)
    end = at + 4 + length
    if end > len(body):
        raise ProtocolError("a string reaches past its frame")
    return body[at + 4 : end], end
