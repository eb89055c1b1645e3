"""The synchronous twin of `tiltyard.sandbox.files.Files`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from pathlib import Path
from typing import BinaryIO

from tiltyard.core.files import (
    WORKSPACE,
    Entry,
    FileStatus,
    Links,
    Specials,
    TreeLimits,
    TreeTotals,
)
from tiltyard.sandbox.files import (
    ENTRIES_MAX,
    READ_BYTES_MAX,
    REMOVE_TIMEOUT_S,
    TREE_LIMITS,
    Files as AsyncFiles,
)
from tiltyard.sync.twin import Twin


class Files(Twin[AsyncFiles]):
    """The files of one sandbox; `sandbox.files` is one.

    Relative paths are below the workspace. In names, bytes that are no UTF-8 appear as surrogate
    escapes, as `os.fsdecode` makes them. Every request raises `SandboxFileError`, with `path` and,
    where the system refused, `errno`; after the sandbox's end `SandboxClosed` or `SandboxDied`;
    and `ValueError` for a number that cannot be.
    """

    def write(self, path: str, content: bytes | str, *, mode: int = 0o644) -> None:
        """Writes a regular file, in place or new, with the directories above it.

        Through a link it writes what the link leads to. What the file held is lost even when the
        disk is full; a write over 1 MiB that fails half-way leaves the part that was written.
        """
        self._call(lambda: self._real.write(path, content, mode=mode))

    def append(self, path: str, content: bytes | str, *, mode: int = 0o644) -> None:
        """Adds to the end of a regular file; makes it like `write` when there is none.

        What was there before is never lost; of what is added, a part may stay when the disk fills.
        """
        self._call(lambda: self._real.append(path, content, mode=mode))

    def read(
        self,
        path: str,
        *,
        offset: int = 0,
        length: int | None = None,
        bytes_max: int = READ_BYTES_MAX,
    ) -> bytes:
        """Reads a regular file from `offset`: `length` bytes, fewer where it ends, None all of it.

        More than `bytes_max` bytes are refused. While a program writes to the file or replaces it,
        pieces of 1 MiB may be from before and after.
        """
        return self._call(
            lambda: self._real.read(path, offset=offset, length=length, bytes_max=bytes_max)
        )

    def stat(self, path: str, *, follow_links: bool = True) -> FileStatus:
        """Tells of anything that has a name; of a link itself when it is not followed."""
        return self._call(lambda: self._real.stat(path, follow_links=follow_links))

    def mkdir(self, path: str, *, mode: int = 0o755, parents: bool = False) -> None:
        """Makes a directory. With `parents` also those above it, and one that is there is fine."""
        self._call(lambda: self._real.mkdir(path, mode=mode, parents=parents))

    def rename(self, source: str, target: str, *, replace: bool = True) -> None:
        """Gives a file or directory another name, at once: a link itself, not what it leads to.

        What has the new name is replaced, as by rename(2), unless `replace` is false. Not across
        the sandbox's file systems (/dev/shm is one), nor for a directory of the image.
        """
        self._call(lambda: self._real.rename(source, target, replace=replace))

    def chmod(self, path: str, mode: int) -> None:
        """Sets the permissions of a regular file or directory, following links."""
        self._call(lambda: self._real.chmod(path, mode))

    def symlink(self, path: str, target: str) -> None:
        """Makes a symbolic link at `path`; `target` is kept as it is, and means a place inside."""
        self._call(lambda: self._real.symlink(path, target))

    def remove(
        self, path: str, *, recursive: bool = False, timeout_s: float = REMOVE_TIMEOUT_S
    ) -> int:
        """Removes a file, link or empty directory, with `recursive` a directory with all in it.

        Returns how many names are gone. It follows no link. A tree into which programs write faster
        than it goes is given up after `timeout_s`; what cannot be removed stops it half-way.
        """
        return self._call(lambda: self._real.remove(path, recursive=recursive, timeout_s=timeout_s))

    def list(self, path: str = WORKSPACE, *, entries_max: int = ENTRIES_MAX) -> tuple[Entry, ...]:
        """Lists a directory, unsorted. More than `entries_max` names are refused."""
        return self._call(lambda: self._real.list(path, entries_max=entries_max))

    def upload(
        self, tree: Path | BinaryIO, path: str = WORKSPACE, *, limits: TreeLimits = TREE_LIMITS
    ) -> TreeTotals:
        """Writes a tree into the directory `path`, which is made when it is missing.

        `tree` is a directory of the host, or an uncompressed tar stream open for reading (it may be
        hostile; hard links and special files are refused). Files are written in place over what has
        their name, directories that are there keep their mode, links replace links. No link inside
        the sandbox is followed below `path`. Permissions and whole seconds of times are kept.

        Raises `TreeError`, naming the entry: those before it are whole, it may be cut short.
        """
        return self._call(lambda: self._real.upload(tree, path, limits=limits))

    def download(
        self,
        path: str,
        tree: Path | BinaryIO,
        *,
        limits: TreeLimits = TREE_LIMITS,
        links: Links = Links.REFUSE,
        specials: Specials = Specials.REFUSE,
    ) -> TreeTotals:
        """Fetches everything below the directory `path`.

        `tree` is a directory of the host that does not exist or is empty, or a stream that an
        uncompressed tar is written to. What comes out is safe to unpack and to walk: regular files
        and directories under plain names, no owners, no set-user-id, of links only what `links`
        says. On the host nobody but the owner may write to it.

        Raises `TreeError`, naming the entry; the directory is then left as it was found, and a
        stream without an archive's end. A file that grows meanwhile is cut at its first size.
        """
        return self._call(
            lambda: self._real.download(path, tree, limits=limits, links=links, specials=specials)
        )
