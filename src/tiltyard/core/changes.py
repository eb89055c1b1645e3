"""What a sandbox's files look like after, compared with before."""

import difflib
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

LINES_COMPARED_MAX = 10_000
"""Comparing takes the square of the lines at the worst: a second for so many."""


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

        Binary content is only named as such. Where more than 10,000 lines on either side are not
        the same at both ends, all between is told as replaced: a program can choose lines that take
        hours to compare.
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
        start, end = _same_ends(before, after)
        if max(len(before), len(after)) - start - end > LINES_COMPARED_MAX:
            lines = _replaced(before, after, names, start=start, end=end, context=context_lines)
        else:
            lines = difflib.unified_diff(before, after, names[0], names[1], n=context_lines)
        return "".join(_ended(lines))


def _same_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines are the same from the start, and then how many from the end."""
    shorter = min(len(before), len(after))
    start = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    left = shorter - start
    end = next((n for n in range(left) if before[-1 - n] != after[-1 - n]), left)
    return start, end


def _replaced(
    before: Sequence[str],
    after: Sequence[str],
    names: Sequence[str],
    *,
    start: int,
    end: int,
    context: int,
) -> Iterator[str]:
    """One hunk in which everything between the same ends goes and comes."""
    first, last = max(start - context, 0), max(end - context, 0)
    yield f"--- {names[0]}\n"
    yield f"+++ {names[1]}\n"
    spans = [(first + 1, len(side) - last - first) for side in (before, after)]
    (old, old_count), (new, new_count) = spans
    yield f"@@ -{old},{old_count} +{new},{new_count} @@\n"
    yield from (f" {line}" for line in before[first:start])
    yield from (f"-{line}" for line in before[start : len(before) - end])
    yield from (f"+{line}" for line in after[start : len(after) - end])
    yield from (f" {line}" for line in before[len(before) - end : len(before) - last])


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
