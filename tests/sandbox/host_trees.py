"""Directory trees on the host, made from a mapping and read back, for comparing."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

Content = bytes | str | None
"""Of a file; the target of a link; None for a directory."""


def plant(root: Path, tree: Mapping[bytes, Content]) -> None:
    for name, content in sorted(tree.items()):
        path = os.path.join(os.fsencode(root), name)  # noqa: PTH118 - bytes
        os.makedirs(os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        if content is None:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103
        elif isinstance(content, str):
            Path(os.fsdecode(path)).symlink_to(content)
        else:
            with open(path, "wb") as file:  # noqa: PTH123
                file.write(content)


def snapshot(root: Path) -> dict[bytes, tuple[Content, int, int]]:
    """Everything below a directory: content, permissions, and of files the second of change."""
    top = os.fsencode(root)
    found: dict[bytes, tuple[Content, int, int]] = {}
    for above, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(above, name)  # noqa: PTH118
            about = os.lstat(path)
            content: Content = None
            if stat.S_ISLNK(about.st_mode):
                content = os.fsdecode(os.readlink(path))  # noqa: PTH115
            elif stat.S_ISREG(about.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            mtime_s = int(about.st_mtime) if isinstance(content, bytes) else 0
            found[os.path.relpath(path, top)] = (content, about.st_mode & 0o755, mtime_s)
    return found
