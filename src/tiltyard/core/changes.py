"""What a sandbox's files look like after, compared with before."""

import difflib
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class ChangeKind(StrEnum):
    """What happened to a name."""

    ADDED = "added"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One file, link or directory that is not as it was.

    The content comes out of a sandbox: it is data, of any size up to the caps and of any bytes.
    """

    kind: ChangeKind
    path: str
    """Absolute, inside the sandbox; undecodable bytes appear as surrogate escapes."""
    mode: int
    """`st_mode`: type and permissions, of what is there now, or of what was deleted."""
    size_bytes: int
    before: bytes | None = None
    """A file's content or a link's target before; None when there was none."""
    after: bytes | None = None
    """The same now; None when it is gone, or no file or link."""
    content_left_out: bool = False
    """The content was too big to be shown: more than 256 KiB, or 64 MiB in all."""

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def unified(self, *, context_lines: int = 3) -> str:
        """The change as a unified text diff; empty for a directory, or when content is left out.

        Binary content is only named as such.
        """
        if self.content_left_out or (self.before is None and self.after is None):
            return ""
        texts = [_text(content) for content in (self.before, self.after)]
        if None in texts:
            return f"Binary file {self.path} was {self.kind}\n"
        before, after = ((text or "").splitlines(keepends=True) for text in texts)
        names = [
            "/dev/null" if content is None else f"{side}{self.path}"
            for side, content in (("a", self.before), ("b", self.after))
        ]
        lines = difflib.unified_diff(before, after, names[0], names[1], n=context_lines)
        return "".join(_ended(lines))


def _text(content: bytes | None) -> str | None:
    """None for what is no text; nothing at all is empty text."""
    if content is None:
        return ""
    if b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def _ended(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
