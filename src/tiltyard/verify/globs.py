"""Globs over relative paths, as tasks declare what is taken and what is protected. Pure."""

import re
from collections.abc import Iterable
from functools import lru_cache

KEPT_MAX = 4096


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether any of the globs matches the whole path.

    `*` and `?` stay within one name and `**` crosses directories: `*.py` is the top directory's
    files, `**/*.py` is all, and `src/`, like `src/**`, all below it. A leading `./` says nothing.
    Letters in brackets are a set, as in a shell; brackets that hold none stand for themselves. Case
    counts.
    """
    return any(_pattern(glob).fullmatch(path) is not None for glob in globs)


@lru_cache(maxsize=KEPT_MAX)
def _pattern(glob: str) -> re.Pattern[str]:
    out: list[str] = []
    at = 0
    glob = glob.removeprefix("./")
    glob = f"{glob}**" if glob.endswith("/") else glob
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
        elif (end := glob.find("]", at + 2) if glob[at] == "[" else -1) > 0 and (
            letters := _set(glob[at + 1 : end])
        ):
            out.append(letters)
            at = end + 1
        else:
            out.append(re.escape(glob[at]))
            at += 1
    return re.compile("".join(out), re.DOTALL)


def _set(inner: str) -> str:
    """A set of letters as a pattern; empty for what is none, such as a range from z to a."""
    negated = inner[0] == "!"
    escaped = re.sub(r"([\\\[\]^&|~])", r"\\\1", inner[negated:])
    letters = f"(?!/)[{'^' * negated}{escaped}]"
    try:
        re.compile(letters)
    except re.error:
        return ""
    return letters
