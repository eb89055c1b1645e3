"""The yard's runtime directory: where its socket, locks and record are.

The directory is opened once and judged by what was opened; everything in it is reached through that
descriptor. So nobody can exchange it in between, and its path may be longer than a socket's may be.
"""

import asyncio
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tiltyard.core.errors import SandboxError, UsageError

SOCKET = "yard.sock"
DAEMON_LOCK = "daemon.lock"
START_LOCK = "start.lock"
RECORD = "yard.json"
LOG = "daemon.log"
LOCK_RETRY_S = 0.02
RECORD_BYTES_MAX = 4 * 1024 * 1024


class Place:
    """An open runtime directory. `close` it, or use `opened`."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def open(cls, path: Path) -> "Place":
        """Makes the directory when it is not there.

        Raises `UsageError` when it is not the user's own, or open to others.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise UsageError(
                f"the runtime directory {path} cannot be used: {error.strerror}.",
                fix="set TILTYARD_RUNTIME_DIR to a directory of your own.",
            ) from None
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            os.close(fd)
            raise UsageError(
                f"the runtime directory {path} belongs to another user or is open to others.",
                fix=f"`chmod 700 {path}`, or set TILTYARD_RUNTIME_DIR to one of your own.",
            )
        return cls(path, fd)

    def close(self) -> None:
        os.close(self._fd)

    @property
    def socket_path(self) -> str:
        """A path to the socket that is short, and leads nowhere else."""
        return f"/proc/self/fd/{self._fd}/{SOCKET}"

    def remove(self, *names: str) -> None:
        for name in names:
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._fd)

    def read(self, name: str) -> bytes | None:
        """A small file of ours; None when there is none."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            return None
        with os.fdopen(fd, "rb") as file:
            return file.read(RECORD_BYTES_MAX)

    def write(self, name: str, content: bytes) -> None:
        """Writes a file so that it is there whole or as it was."""
        draft = f".{name}.{os.getpid()}"
        with os.fdopen(self.open_file(draft, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(content)
        os.replace(draft, name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def open_file(self, name: str, flags: int) -> int:
        """A descriptor of a file of ours, which is made when it is not there."""
        kept = os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags | kept, 0o600, dir_fd=self._fd)

    def try_lock(self, name: str) -> int | None:
        """Takes a lock and returns its descriptor, which holds it; None when somebody has it."""
        while True:
            fd = self.open_file(name, os.O_RDWR)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            # Whoever had it may have removed the file before letting it go.
            if self._is_file(name, fd):
                return fd
            os.close(fd)

    async def lock(self, name: str, *, timeout_s: float) -> int:
        """As `try_lock`, waiting. Raises `SandboxError` when that takes too long."""
        try:
            async with asyncio.timeout(timeout_s):
                # flock itself cannot be waited for with a deadline.
                while (fd := self.try_lock(name)) is None:  # noqa: ASYNC110
                    await asyncio.sleep(LOCK_RETRY_S)
        except TimeoutError:
            raise SandboxError(
                f"{self.path / name} was held by another process for {timeout_s:.0f} s.",
                fix="see what it does: `fuser` on that file names it.",
            ) from None
        return fd

    def is_locked(self, name: str) -> bool:
        """Whether somebody holds a lock; leaves nothing behind."""
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def _is_file(self, name: str, fd: int) -> bool:
        try:
            there = os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(fd))


@contextmanager
def opened(path: Path) -> Iterator[Place]:
    """A runtime directory for the length of a block."""
    place = Place.open(path)
    try:
        yield place
    finally:
        place.close()
