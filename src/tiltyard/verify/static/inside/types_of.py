"""mypy on Python sources: strict about nothing that they leave out. Runs inside.

Comments are taken out first, because mypy has no option to pass over `type: ignore` and `mypy:`.
"""

import io
import os
import re
import socket
import tokenize
from typing import Any

from channel import Channel
from mypy import api

Files = list[tuple[str, bytes]]
LISTED_MAX = 50
PLACE = "/workspace/sources"
CACHE = "/run/tiltyard/cache"
ARGUMENTS = (
    *("--config-file=", "--no-site-packages", "--ignore-missing-imports", "--check-untyped-defs"),
    *("--no-error-summary", "--no-color-output", "--hide-error-context"),
    *("--no-sqlite-cache", "--cache-dir", CACHE),  # a database needs a place to write to
)
FINDING = re.compile(r"^(?:\S*/)?m(\d+)\.py:(\d+): error: (.*?)(?:  \[([\w-]+)\])?$")
MESSAGE_CHARACTERS_MAX = 300


def without_comments(source: bytes) -> bytes:
    """The source with blanks for its comments; every line keeps its number."""
    text = source.decode(tokenize.detect_encoding(io.BytesIO(source).readline)[0])
    lines = text.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start[0] - 1, token.start[1]
            rest = lines[row][column + len(token.string) :]
            lines[row] = lines[row][:column] + " " * len(token.string) + rest
    return "".join(lines).encode()


def types(files: Files) -> Any:
    """mypy's errors."""
    os.makedirs(PLACE, exist_ok=True)
    names = [f"{PLACE}/m{number}.py" for number in range(len(files))]
    for name, (_, source) in zip(names, files, strict=True):
        with open(name, "wb") as file:
            file.write(without_comments(source))
    said, complaint, code = api.run([*ARGUMENTS, *names])
    if code not in {0, 1}:
        return ("failed", f"mypy: {complaint or said}"[:MESSAGE_CHARACTERS_MAX])
    found: list[Any] = []
    count = 0
    for line in said.splitlines():
        match = FINDING.match(line)
        if match is None:
            continue
        count += 1
        if len(found) < LISTED_MAX:
            number, at, words, rule = match.groups()
            found.append([rule or "error", words[:200], files[int(number)][0], int(at), None])
    return ("report", {"findings": float(count)}, found)


def serve(channel: socket.socket) -> None:
    """Answers requests, as analyse.py does."""
    host = Channel(channel)
    files: Files = []
    while True:
        request = host.receive()
        if request[0] == "files":
            files = [(path, source) for path, source in request[2]]
            reply: Any = ("taken",)
        else:
            try:
                reply = types(files)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - hostile sources: theirs
                reply = ("failed", f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS_MAX])
        host.send(reply)


def warm() -> None:
    """Reads the standard library's types once, into a cache that all runs then read."""
    first = "/run/tiltyard/first.py"
    with open(first, "w") as file:
        file.write("import collections, dataclasses, functools, itertools, math, re, typing\n")
    api.run([*ARGUMENTS, first])


warm()
