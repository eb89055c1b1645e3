"""The values of a sandbox's file interface: what is known of a file, and the bounds of a tree."""

import stat
from dataclasses import dataclass
from enum import StrEnum

MIB = 1024 * 1024
PATH_BYTES_MAX = 4095
"""What the kernel takes."""
NAME_BYTES_MAX = 255
DEPTH_MAX = 64
"""Directories below one another that the supervisor can walk (native/walk.h)."""
WORKSPACE = "/workspace"
"""Where relative paths start."""


class FileKind(StrEnum):
    """What a name stands for."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    FIFO = "fifo"
    SOCKET = "socket"
    DEVICE = "device"


def kind_of(mode: int) -> FileKind:
    """The kind that `st_mode` tells of."""
    if stat.S_ISREG(mode):
        return FileKind.FILE
    if stat.S_ISDIR(mode):
        return FileKind.DIRECTORY
    if stat.S_ISLNK(mode):
        return FileKind.LINK
    if stat.S_ISFIFO(mode):
        return FileKind.FIFO
    return FileKind.SOCKET if stat.S_ISSOCK(mode) else FileKind.DEVICE


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name in a directory of the sandbox."""

    name: str
    """Undecodable bytes appear as surrogate escapes."""
    mode: int
    """`st_mode`: type and permissions."""
    size_bytes: int

    @property
    def kind(self) -> FileKind:
        return kind_of(self.mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """What is known of one file, directory or other thing in a sandbox."""

    mode: int
    """`st_mode`: type and permissions."""
    size_bytes: int
    mtime_s: float
    """Seconds since 1970 of the last change of its content."""
    uid: int
    """As the sandbox numbers its users: 0 is its own root."""
    gid: int
    hard_links: int
    target: str | None
    """Where a link points; None for anything else."""

    @property
    def kind(self) -> FileKind:
        return kind_of(self.mode)


class Links(StrEnum):
    """What to do with a symbolic link in a tree that comes out of a sandbox."""

    REFUSE = "refuse"
    SKIP = "skip"
    KEEP = "keep"
    """Keep those that provably stay inside the tree; refuse any other."""


class Specials(StrEnum):
    """What to do with FIFOs, sockets, devices and mount points in a tree out of a sandbox."""

    REFUSE = "refuse"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLimits:
    """The bounds of one tree; what goes over one is an error that names the entry."""

    entries_max: int = 100_000
    bytes_max: int = 1024 * MIB
    """Of all files together."""
    path_bytes_max: int = 1024
    """Of one path below the tree's root, and of one link's target."""
    depth_max: int = 32
    """How many directories may be below one another."""

    def __post_init__(self) -> None:
        if self.entries_max < 1 or self.bytes_max < 0:
            raise ValueError(f"entries_max {self.entries_max}, bytes_max {self.bytes_max}")
        if not (1 <= self.path_bytes_max <= PATH_BYTES_MAX and 1 <= self.depth_max <= DEPTH_MAX):
            raise ValueError(f"path_bytes_max {self.path_bytes_max}, depth_max {self.depth_max}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeTotals:
    """What a tree held that was sent into a sandbox or fetched from one."""

    files: int
    directories: int
    links: int
    content_bytes: int
    skipped: int = 0
    """Links and specials that were left out on request."""
    skipped_paths: tuple[str, ...] = ()
    """The first of them."""
