"""The kernel's counters of sandboxes, kept open while they are used.

Reading one costs a microsecond, opening it fifteen, and every run reads some nine. So their files
stay open; but only so many, those that were used last, for each is a descriptor of this process.
"""

import os
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress

OPEN_MAX = 576
"""Nine for each of 64 sandboxes that run something at once; more are opened anew each time."""
READ_BYTES_MAX = 4096
"""More than any of the files has."""


class CounterFiles:
    """Open files by their paths. What cannot be read is empty: its sandbox has gone."""

    def __init__(self, *, open_max: int = OPEN_MAX) -> None:
        self._open: OrderedDict[tuple[str, int], int] = OrderedDict()
        self._open_max = open_max

    def __len__(self) -> int:
        return len(self._open)

    def read(self, path: str) -> bytes:
        """A file's content; empty when there is none, and for an empty path."""
        if not path:
            return b""
        try:
            return os.pread(self._descriptor(path, os.O_RDONLY), READ_BYTES_MAX, 0)
        except OSError:
            return b""

    def write(self, path: str, value: bytes) -> None:
        """Writes a value, when the file is still there."""
        with suppress(OSError):
            os.pwrite(self._descriptor(path, os.O_WRONLY), value, 0)

    def close(self, paths: Iterable[str]) -> None:
        """Closes files that are read no more."""
        for path in paths:
            for flags in (os.O_RDONLY, os.O_WRONLY):
                fd = self._open.pop((path, flags), None)
                if fd is not None:
                    os.close(fd)

    def close_all(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()

    def _descriptor(self, path: str, flags: int) -> int:
        key = (path, flags)
        fd = self._open.get(key)
        if fd is not None:
            self._open.move_to_end(key)
            return fd
        if len(self._open) >= self._open_max:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        fd = self._open[key] = os.open(path, flags | os.O_CLOEXEC)
        return fd
