"""Globs over relative paths, as tasks declare what is taken and what is protected. Pure."""

import fnmatch
import re
from collections.abc import Callable, Iterable
from functools import lru_cache

KEPT_MAX = 4096


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether any of the globs matches the whole path.

    `*` and `?` stay within one name and `**` crosses directories: `*.py` is the top directory's
    files, `**/*.py` is all, and `src/`, like `src/**`, all below it. A leading `./` says nothing.
    Letters in brackets are a set, as in a shell; brackets that hold none stand for themselves. Case
    counts.
    """
    return any(_matcher(glob)(path) for glob in globs)


@lru_cache(maxsize=KEPT_MAX)
def _matcher(written: str) -> Callable[[str], bool]:
    glob = written.removeprefix("./")
    glob = f"{glob}**" if glob.endswith("/") else glob
    parts = glob.split("/")
    if any("**" in part and part != "**" for part in parts) or _spans(glob):
        pattern = _pattern(glob)
        return lambda path: pattern.fullmatch(path) is not None
    names = tuple(
        None if part == "**" else re.compile(fnmatch.translate(part), re.DOTALL) for part in parts
    )
    return lambda path: _by_names(names, path.split("/"))


def _spans(glob: str) -> bool:
    """Whether brackets hold a slash, so that names are not where the slashes are, or no letters."""
    return any("/" in found or not _set(found[1:-1]) for found in _BRACKETS.findall(glob))


def _by_names(names: tuple[re.Pattern[str] | None, ...], path: list[str]) -> bool:
    """Name by name and never back: one expression for a whole path takes a time that grows by a
    power of its length for every wildcard, and who makes the paths may be hostile."""
    last = len(names) - 1
    places = {0}
    for name in path:
        after: set[int] = set()
        for first in places:
            place = first
            # `**` may also stand for nothing, but at the end it is at least one name.
            while place < last and names[place] is None:
                after.add(place)
                place += 1
            pattern = names[place] if place <= last else _NOTHING
            if pattern is None:
                after |= {place, place + 1}
            elif pattern.match(name):
                after.add(place + 1)
        places = after
    return last + 1 in places


_NOTHING = re.compile(r"(?!)")
_BRACKETS = re.compile(r"\[.[^\]]*\]", re.DOTALL)


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
