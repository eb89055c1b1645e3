"""What an entry of a tree may be, in either direction. Pure: it sees names, never a file.

A tree out of a sandbox is hostile, and one into it may come from anywhere. So every entry is judged
before anything is done with it: its path is plain (no `..`, nothing absolute or empty), below a
directory that came before it, and there for the first time; the tree stays within its bounds.

`tarfile` has filters of its own. They judge names against a directory of the host, by looking at
what links are there at that moment, and have been evaded that way; these rules look at nothing.
"""

from hashlib import blake2b

from tiltyard.core.errors import TreeError
from tiltyard.core.files import NAME_BYTES_MAX, TreeLimits, TreeTotals
from tiltyard.sandbox.file_frames import Head, RecordKind

KEPT_LINKS_MAX = 10_000
"""Links are made after everything else, so the host has to remember them."""
SKIPPED_NAMED_MAX = 100
_KINDS = {
    RecordKind.DIRECTORY: "directory",
    RecordKind.FILE: "file",
    RecordKind.LINK: "symbolic link",
    RecordKind.SPECIAL: "FIFO, socket, device or mount point",
}


class TreeCheck:
    """Judges the entries of one tree in order, and counts them."""

    def __init__(self, limits: TreeLimits, *, what: str) -> None:
        self._limits = limits
        self._what = what
        # Digests, because names are up to a kilobyte and hostile: a hundred thousand stay small.
        self._seen: dict[bytes, bool] = {b"": True}
        self._counts = dict.fromkeys(RecordKind, 0)
        self._content_bytes = 0
        self._skipped = 0
        self._skipped_paths: list[str] = []

    def refusal(self, path: str, why: str, *, errno: int | None = None) -> TreeError:
        """The error that names an entry."""
        return TreeError(f"{self._what}: {path[:500]!r}: {why}.", path=path, errno=errno)

    def knows(self, path: str) -> bool:
        return _digest(path) in self._seen

    def knows_directory(self, path: str) -> bool:
        return self._seen.get(_digest(path), False)

    def add(self, head: Head) -> None:
        """Takes an entry in. Raises `TreeError` when it may not be."""
        limits, path = self._limits, head.path
        self.require_plain(head)
        key = _digest(path)
        if key in self._seen:
            raise self.refusal(path, "the name is there a second time")
        if not self.knows_directory(path.rpartition("/")[0]):
            raise self.refusal(path, "no directory of the tree holds it")
        if len(self._seen) > limits.entries_max:
            raise self.refusal(path, f"the tree has more than {limits.entries_max} entries")
        if self._content_bytes + head.size_bytes > limits.bytes_max:
            raise self.refusal(
                path, f"with its {head.size_bytes} bytes the tree is over {limits.bytes_max}"
            )
        self._seen[key] = head.kind is RecordKind.DIRECTORY
        self._counts[head.kind] += 1
        self._content_bytes += head.size_bytes

    def require_plain(self, head: Head) -> None:
        """Raises `TreeError` unless the path is plain and short enough, whatever else there is."""
        limits, path = self._limits, head.path
        raw = _raw(path)
        parts = path.split("/")
        if raw is None or "\0" in path or any(part in {"", ".", ".."} for part in parts):
            raise self.refusal(path, f"not a path that a {_KINDS[head.kind]} may have")
        if any(len(part) > NAME_BYTES_MAX for part in raw.split(b"/")):
            raise self.refusal(path, f"a name is over {NAME_BYTES_MAX} bytes")
        if len(raw) > limits.path_bytes_max:
            raise self.refusal(path, f"the path is over {limits.path_bytes_max} bytes")
        if len(parts) - (head.kind is not RecordKind.DIRECTORY) > limits.depth_max:
            raise self.refusal(path, f"it is below more than {limits.depth_max} directories")

    def skip(self, head: Head) -> None:
        """Counts an entry that is left out; it still counts against the tree's bounds."""
        self.add(head)
        self._counts[head.kind] -= 1
        self._skipped += 1
        if self._skipped <= SKIPPED_NAMED_MAX:
            self._skipped_paths.append(head.path)

    def keep_link(self, head: Head) -> None:
        """Takes a symbolic link in that provably stays inside the tree."""
        if not stays_inside(head.path, head.target):
            raise self.refusal(head.path, f"the link to {head.target[:200]!r} may lead outside")
        if len(_raw(head.target) or b"") > self._limits.path_bytes_max:
            raise self.refusal(head.path, "the link's target is too long")
        if self._counts[RecordKind.LINK] >= KEPT_LINKS_MAX:
            raise self.refusal(head.path, f"the tree has more than {KEPT_LINKS_MAX} links")
        self.add(head)

    def totals(self) -> TreeTotals:
        return TreeTotals(
            files=self._counts[RecordKind.FILE],
            directories=self._counts[RecordKind.DIRECTORY],
            links=self._counts[RecordKind.LINK],
            content_bytes=self._content_bytes,
            skipped=self._skipped,
            skipped_paths=tuple(self._skipped_paths),
        )


def refused_kind(kind: RecordKind) -> str:
    """Why an entry of a kind that nobody asked for is refused, and what to do."""
    choice = "links" if kind is RecordKind.LINK else "specials"
    return f"a {_KINDS[kind]}; say with {choice}= what to do with such"


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` provably leads to nothing outside the tree.

    `..` may only lead: then it goes up through directories of the tree, which are what they seem.
    After a name it could go up from wherever another link has led to.
    """
    parts = [part for part in target.split("/") if part not in {"", "."}]
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    return (
        bool(target)
        and not target.startswith("/")
        and "\0" not in target
        and _raw(target) is not None
        and up <= path.count("/")
        and ".." not in parts[up:]
    )


def _raw(path: str) -> bytes | None:
    """The bytes of a name; None when it has none, which only the host's own strings may lack."""
    try:
        return path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None


def _digest(path: str) -> bytes:
    return blake2b(_raw(path) or b"", digest_size=16).digest() if path else b""
