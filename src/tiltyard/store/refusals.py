"""What the system refused, said as a `StoreError`: which file, where in it, what to do."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tiltyard.core.errors import StoreError

_FIXES = {
    errno.ENOSPC: "Free space on that file system, then go on: what was recorded is intact.",
    errno.EDQUOT: "Free space within the quota, then go on: what was recorded is intact.",
    errno.EFBIG: "Raise the file size limit (ulimit -f), then go on: what was recorded is intact.",
    errno.EROFS: "Mount that file system writable, or name another run directory.",
    errno.EACCES: "Correct the permissions, or name another run directory.",
    errno.EPERM: "Correct the permissions, or name another run directory.",
    errno.ENOENT: "Name the directory of a run.",
}
_OTHER_FIX = "Check that disk and the file's permissions, then open the run again."


def refused(error: OSError, path: Path, offset: int | None = None) -> StoreError:
    """The `StoreError` for an operation on `path`; `offset` is None where there is none."""
    at = "" if offset is None else f" at offset {offset}"
    return StoreError(
        f"{path}{at}: {error.strerror or error}.", fix=_FIXES.get(error.errno or 0, _OTHER_FIX)
    )


@contextmanager
def refusing_files(path: Path, offset: int | None = None) -> Iterator[None]:
    """Turn an `OSError` inside the block into a `StoreError`."""
    try:
        yield
    except OSError as error:
        raise refused(error, path, offset) from error


@contextmanager
def refusing_index(path: Path) -> Iterator[None]:
    """Turn an error of SQLite inside the block into a `StoreError`."""
    try:
        yield
    except sqlite3.Error as error:
        fix = "Free space or correct the permissions, then open the run again."
        raise StoreError(f"The index {path} cannot be used: {error}.", fix=fix) from error
