"""What is spoken on the yard's socket: frames, and the messages in them. Pure: bytes and values.

A frame is a little-endian u32 length, a kind and a body of at most 1 MiB. Messages are JSON objects
that are checked against the classes below, extra fields and all; the bytes of programs and files go
in frames of their own. Both sides are Tiltyard of one user; still neither trusts the other's bytes.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tiltyard.core.errors import SandboxError, UsageError
from tiltyard.core.execution import Limit, NetworkMode, Reason
from tiltyard.core.files import FileKind, Links

VERSION = 2
BODY_BYTES_MAX = 1024 * 1024
BLOCK_BYTES = 64 * 1024
"""Of what is cut into frames."""
HEADER = struct.Struct("<IB")
FILE_BYTES_MAX = 64 * 1024 * 1024
STDIN_FRAMES_MAX = 4
"""So many frames of standard input may be on the way. The daemon must never have to stop reading
because a program does: it would not see that its client has gone."""
TTL_S_MAX = 30 * 24 * 3600.0
IDS_MAX = 1024
RULES_MAX = 1024


class WireError(SandboxError):
    """The other side of the yard's socket does not speak its protocol."""


class Kind(IntEnum):
    """What a frame carries."""

    MESSAGE = 1
    STDIN = 2
    """Empty at its end; so are the others."""
    STDOUT = 3
    STDERR = 4
    CONTENT = 5
    TAKEN = 6
    """Empty: one frame of standard input was taken in, and one more may be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame."""

    kind: Kind
    body: bytes


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


_Id = Annotated[str, Field(min_length=1, max_length=64)]
_Path = Annotated[str, Field(min_length=1, max_length=4096)]


class Size(_Message):
    """A terminal's."""

    rows: int = Field(ge=1, le=10_000)
    columns: int = Field(ge=1, le=10_000)


class Create(_Message):
    """Make a sandbox. Answered by `Table` with its row."""

    do: Literal["create"] = "create"
    memory_bytes: int
    pids: int
    cpus: float
    open_files: int
    disk_bytes: int
    inodes: int
    allow_unenforced: list[Limit]
    writable: bool
    network: NetworkMode
    allow: list[str] = Field(max_length=RULES_MAX)
    bandwidth_up_bytes_s: int | None = None
    """None: not limited; likewise down."""
    bandwidth_down_bytes_s: int | None = None
    ttl_s: float = Field(gt=0, le=TTL_S_MAX)


class Exec(_Message):
    """Run a program. Answered by STDOUT and STDERR frames, then `Ended`."""

    do: Literal["exec"] = "exec"
    id: _Id
    argv: list[str] = Field(min_length=1)
    cwd: _Path
    env: dict[str, str]
    timeout_s: float | None
    """None: with its sandbox."""
    terminal: Size | None
    """None: none. Else standard input is typed into it, and standard error is in the output."""
    user: str | None = None
    """A name or a number; None: the sandbox's root."""
    cpu_s: int = 0
    """Of each process; 0: not limited."""
    idle_s: float | None = None
    """None: it may write nothing for ever."""
    output_bytes_max: int | None = None
    """None: not limited."""


class Resize(_Message):
    """While a program runs in a terminal: its new size. Not answered."""

    do: Literal["resize"] = "resize"
    size: Size


class Write(_Message):
    """Write a file, from CONTENT frames. Answered by `Done`."""

    do: Literal["write"] = "write"
    id: _Id
    path: _Path
    mode: int = Field(ge=0, le=0o777)


class Read(_Message):
    """Read a file. Answered by CONTENT frames."""

    do: Literal["read"] = "read"
    id: _Id
    path: _Path


class Look(_Message):
    """What is at a path? Answered by `Seen`."""

    do: Literal["look"] = "look"
    id: _Id
    path: _Path


class Tree(_Message):
    """A directory of this machine. Device and inode say whether the daemon sees the same one."""

    path: _Path
    device: int
    inode: int


class Upload(_Message):
    """Write a tree into a directory of a sandbox. Answered by `Copied`."""

    do: Literal["upload"] = "upload"
    id: _Id
    path: _Path
    tree: Tree


class Download(_Message):
    """Fetch what is below a directory of a sandbox into an empty one. Answered by `Copied`."""

    do: Literal["download"] = "download"
    id: _Id
    path: _Path
    tree: Tree
    links: Links


class List(_Message):
    """Tell of every sandbox. Answered by `Table`."""

    do: Literal["list"] = "list"


class Remove(_Message):
    """End sandboxes. Answered by `Table` with the rows of those that were ended."""

    do: Literal["remove"] = "remove"
    ids: list[_Id] | None = Field(max_length=IDS_MAX)
    """None: all."""


class Stop(_Message):
    """End every sandbox and the daemon. Answered by `Done` as soon as that is certain."""

    do: Literal["stop"] = "stop"


Request = Annotated[
    Create | Exec | Resize | Write | Read | Look | Upload | Download | List | Remove | Stop,
    Field(discriminator="do"),
]


class Hello(_Message):
    """What the daemon says first."""

    say: Literal["hello"] = "hello"
    version: int
    pid: int


class State(StrEnum):
    """How a sandbox is."""

    LIVE = "live"
    DEAD = "dead"
    """Its first process ended by itself or was killed; nothing of it runs."""
    LOST = "lost"
    """The daemon was killed, and the sandbox with it."""


class Row(_Message):
    """One sandbox."""

    id: str
    state: State
    created_s: float
    """On the clock on the wall, seconds since 1970; so is the deadline."""
    deadline_s: float
    memory_bytes_max: int = 0
    pids_max: int = 0
    cpus: float = 0.0
    unenforced: list[Limit] = []
    """What this machine does not hold of it, or only in each process by itself."""
    cpu_s: float | None = None
    """CPU seconds used so far; None where no cgroup counts them, as with the following."""
    memory_bytes: int | None = None
    memory_peak_bytes: int | None = None
    pids: int | None = None


class Table(_Message):
    """Sandboxes."""

    say: Literal["table"] = "table"
    rows: list[Row]


class Ended(_Message):
    """How a program ended."""

    say: Literal["ended"] = "ended"
    reason: Reason
    exit_code: int | None
    signal: int | None
    wall_s: float
    cpu_s: float
    memory_peak_bytes: int
    detail: str
    skipped_bytes: int
    """Of its output, because it was not taken off fast enough."""


class Seen(_Message):
    """What is at a path, links followed."""

    say: Literal["seen"] = "seen"
    kind: FileKind | None
    """None: nothing."""


class Copied(_Message):
    """What a tree held."""

    say: Literal["copied"] = "copied"
    files: int
    content_bytes: int
    skipped: int
    """Links and special files that were left out."""
    skipped_paths: list[str]
    """The first of them."""


class Done(_Message):
    """It is done."""

    say: Literal["done"] = "done"


class Failed(_Message):
    """It could not be done. Nothing follows."""

    say: Literal["failed"] = "failed"
    message: str
    fix: str | None
    usage: bool
    """Whether what was asked for is wrong; else this machine or the sandbox could not."""


Reply = Annotated[Hello | Table | Ended | Seen | Copied | Done | Failed, Field(discriminator="say")]

_T = TypeVar("_T")
_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)
_REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)


def parse_header(header: bytes) -> tuple[Kind, int]:
    """The kind of a frame and how many bytes follow. Raises `WireError`."""
    length, number = HEADER.unpack(header)
    if length > BODY_BYTES_MAX:
        raise WireError(f"a frame of {length} bytes came; at most {BODY_BYTES_MAX} are allowed.")
    try:
        return Kind(number), length
    except ValueError:
        raise WireError(f"a frame of the unknown kind {number} came.") from None


def frame(kind: Kind, body: bytes) -> bytes:
    """Encodes a frame. Raises `WireError` when it is too long."""
    if len(body) > BODY_BYTES_MAX:
        raise WireError(f"a message of {len(body)} bytes is over {BODY_BYTES_MAX}: ask for less.")
    return HEADER.pack(len(body), kind) + body


def message_frame(message: Request | Reply) -> bytes:
    """Encodes a message. Raises `WireError` when it is too long."""
    return frame(Kind.MESSAGE, message.model_dump_json().encode())


def parse_request(received: Frame) -> Request:
    """Decodes a request. Raises `WireError`."""
    return _parsed(_REQUEST, received)


def parse_reply(received: Frame) -> Reply:
    """Decodes a reply. Raises `WireError`."""
    return _parsed(_REPLY, received)


@contextmanager
def asked_for() -> Iterator[None]:
    """A block that makes requests of a user's words. Raises `UsageError` where one cannot."""
    try:
        yield
    except ValidationError as error:
        where, problem = _first_problem(error)
        raise UsageError(f"{where} cannot be sent: {problem}.") from None


def _parsed(adapter: TypeAdapter[_T], received: Frame) -> _T:
    if received.kind is not Kind.MESSAGE:
        raise WireError(f"a {received.kind.name} frame came instead of a message.")
    try:
        return adapter.validate_json(received.body)
    except ValidationError as error:
        where, problem = _first_problem(error)
        raise WireError(f"a message is malformed: {where}: {problem}.") from None


def _first_problem(error: ValidationError) -> tuple[str, str]:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return ".".join(map(str, first["loc"])) or "it", first["msg"]
