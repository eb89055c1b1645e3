"""Globs over relative paths, as tasks declare what is taken and what is protected. Pure."""

import re
from collections.abc import Iterable
from functools import cache


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether any of the globs matches the whole path.

    `*` and `?` stay within one name, `**` crosses directories, a name without any slash and a
    leading `**/` match at every depth only where they say so: `*.py` is the top directory's files,
    `**/*.py` is all. Case counts. Letters in brackets are a set, as in a shell.
    """
    return any(_pattern(glob).fullmatch(path) is not None for glob in globs)


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    out: list[str] = []
    at = 0
    while at < len(glob):
        if glob.startswith("**/", at):
            out.append("(?:.*/)?")
            at += 3
        elif glob.startswith("**", at):
            out.append(".*")
            at += 2
        elif glob[at] == "*":
            out.append("[^/]*")
            at += 1
        elif glob[at] == "?":
            out.append("[^/]")
            at += 1
        elif glob[at] == "[" and (end := glob.find("]", at + 2)) > 0:
            inner = glob[at + 1 : end].replace("\\", "\\\\")
            out.append(f"(?!/)[{'^' + inner[1:] if inner[0] == '!' else inner}]")
            at = end + 1
        else:
            out.append(re.escape(glob[at]))
            at += 1
    return re.compile("".join(out), re.DOTALL)
