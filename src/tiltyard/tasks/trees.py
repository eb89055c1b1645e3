"""A directory that somebody else made, read without following or trusting anything in it.

Theory of operation: the tree is walked by descriptors, never by whole paths, so no link can lead
elsewhere, whenever it appears. What a name stands for is looked at before it is opened (opening a
device may already do something), and again on the descriptor, because it may have been replaced in
between. Directories are listed lazily and counted as they are listed: a tree of a million files
costs no more than one at the bound. Only plain files are read; all else is told by what it is.
"""

import errno
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tiltyard.core.files import MIB, FileKind, kind_of
from tiltyard.core.task import Odd

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DIRECTORY = _READ | os.O_DIRECTORY
ODD_KINDS = {
    FileKind.FIFO: Odd.FIFO,
    FileKind.SOCKET: Odd.SOCKET,
    FileKind.DEVICE: Odd.DEVICE,
}
_DENIED = frozenset({errno.EACCES, errno.EPERM})
_REPLACED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENXIO, errno.ENODEV})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """The bounds of one tree."""

    entries_max: int = 10_000
    """Names of every kind, directories included."""
    file_bytes_max: int = 64 * MIB
    bytes_max: int = 256 * MIB
    """Of all files together; half of it is kept for those that are needed."""
    depth_max: int = 32
    """Directories below one another; each holds a descriptor while it is walked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """What there was, by path below the root with `/` between names."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    odd: dict[str, str] = field(default_factory=dict)
    """One of `Odd` for each; `.` is the root."""


def every(_path: str) -> bool:
    """Every file is read."""
    return True


def into_all(_path: str, _names: Sequence[str]) -> bool:
    """Every directory is looked into."""
    return True


def read_tree(
    root: int,
    caps: Caps,
    *,
    wanted: Callable[[str], bool] = every,
    needed: Callable[[str], bool] = every,
    into: Callable[[str, Sequence[str]], bool] = into_all,
    hard_links: bool = False,
) -> Tree:
    """Reads the directory that the descriptor `root` is of, and leaves the descriptor open.

    `wanted` is asked with the path of each file, link, directory and other thing; what it does not
    want is not looked at, nor what is below it, and counts as one. `needed` is asked of each file
    whether it may use up all the bytes, `into` of each directory below the root, with the names in
    it, whether what they stand for is looked at. `hard_links`: whether a file with a second name is
    read like any other. Raises `OSError` when the host itself fails, as for a broken disk.
    """
    tree = Tree()
    walk = _Walk(
        caps=caps, wanted=wanted, needed=needed, into=into, hard_links=hard_links, tree=tree
    )
    walk.directory(root, "", 0)
    return tree


def read_file(root: int, name: str, caps: Caps, *, hard_links: bool) -> bytes | Odd:
    """A plain file directly below a directory, or what it is instead.

    Raises `FileNotFoundError` when nothing is there, and `OSError` when the host fails.
    """
    status = os.stat(name, dir_fd=root, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        return ODD_KINDS.get(kind_of(status.st_mode), Odd.CHANGED)
    try:
        descriptor = os.open(name, _READ, dir_fd=root)
    except OSError as error:
        if error.errno in _DENIED:
            return Odd.UNREADABLE
        if error.errno in _REPLACED:
            return Odd.CHANGED
        raise
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return ODD_KINDS.get(kind_of(status.st_mode), Odd.CHANGED)
        if status.st_nlink > 1 and not hard_links:
            return Odd.HARD_LINK
        if status.st_size > caps.file_bytes_max:
            return Odd.TOO_LARGE
        # By its growth, not by its size, which may be wrong by the time that it is read.
        content = _read(file.read, caps.file_bytes_max + 1)
    return Odd.TOO_LARGE if len(content) > caps.file_bytes_max else content


def open_directory(path: str | Path, *, below: int | None = None) -> int:
    """A descriptor of a directory that is no link; below another one, or by itself."""
    return os.open(path, _DIRECTORY, dir_fd=below)


class _FullError(Exception):
    """The tree has more entries than may be."""


@dataclass(slots=True, kw_only=True)
class _Walk:
    caps: Caps
    wanted: Callable[[str], bool]
    needed: Callable[[str], bool]
    into: Callable[[str, Sequence[str]], bool]
    hard_links: bool
    tree: Tree
    entries: int = 0
    bytes_read: int = 0

    def directory(self, descriptor: int, path: str, depth: int) -> None:
        try:
            names = self._names(descriptor)
            if path and not self.into(path, names):
                return
            for name in names:
                self._entry(descriptor, name, f"{path}/{name}" if path else name, depth)
        except _FullError:
            self.tree.odd[path or "."] = Odd.TOO_MANY
            if path:
                raise

    def _names(self, descriptor: int) -> list[str]:
        names: list[str] = []
        with os.scandir(descriptor) as found:
            for entry in found:
                self.entries += 1
                if self.entries > self.caps.entries_max:
                    raise _FullError
                names.append(entry.name)
        return sorted(names)

    def _entry(self, above: int, name: str, path: str, depth: int) -> None:
        try:
            name.encode()
        except UnicodeEncodeError:
            # Shown by its bytes: a lone surrogate has no place in a record.
            raw = os.fsencode(path)
            self.tree.odd[raw.decode("utf-8", "backslashreplace")] = Odd.BAD_NAME
            return
        if not self.wanted(path):
            return
        try:
            mode = os.stat(name, dir_fd=above, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                self._below(above, name, path, depth)
            elif stat.S_ISLNK(mode):
                target = os.fsencode(os.readlink(name, dir_fd=above))
                self.tree.links[path] = target.decode("utf-8", "backslashreplace")
            elif stat.S_ISREG(mode):
                self._file(above, name, path)
            else:
                self.tree.odd[path] = ODD_KINDS[kind_of(mode)]
        except FileNotFoundError:
            self.tree.odd[path] = Odd.CHANGED
        except OSError as error:
            if error.errno in _DENIED:
                self.tree.odd[path] = Odd.UNREADABLE
            elif error.errno in _REPLACED | {errno.EINVAL}:
                self.tree.odd[path] = Odd.CHANGED
            else:
                raise

    def _below(self, above: int, name: str, path: str, depth: int) -> None:
        if depth == self.caps.depth_max:
            self.tree.odd[path] = Odd.TOO_DEEP
            return
        descriptor = open_directory(name, below=above)
        try:
            self.directory(descriptor, path, depth + 1)
        finally:
            os.close(descriptor)

    def _file(self, above: int, name: str, path: str) -> None:
        kept = 0 if self.needed(path) else self.caps.bytes_max // 2
        left = max(self.caps.bytes_max - kept - self.bytes_read, 0)
        caps = Caps(file_bytes_max=min(left, self.caps.file_bytes_max))
        content = read_file(above, name, caps, hard_links=self.hard_links)
        if isinstance(content, Odd):
            self.tree.odd[path] = content
        else:
            self.bytes_read += len(content)
            self.tree.files[path] = content


def _read(read: Callable[[int], bytes | None], count: int) -> bytes:
    parts: list[bytes] = []
    while count and (part := read(min(count, MIB))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
