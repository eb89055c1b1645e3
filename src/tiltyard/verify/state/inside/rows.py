"""Asks an SQLite file one question. Runs in a sandbox of the verifier's: the file is hostile.

from the host: ("rows", database, its write-ahead log or b"", query)
to the host:   ("rows", [[text, ...], ...]) | ("error", words)
"""

import os
import socket
import sqlite3
from typing import Any

import codec

ROWS_MAX = 1000
TEXT_MAX = 4096


def exactly(channel: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = channel.recv(min(count, 1 << 20))
        if not part:
            os._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def serve(channel: socket.socket) -> None:
    """Answers one question."""
    length = int.from_bytes(exactly(channel, 4), "little")
    _, database, log, query = codec.decode(exactly(channel, length))
    for name, content in (("db", database), ("db-wal", log)):
        if content:
            with open(f"/workspace/{name}", "wb") as file:
                file.write(content)
    try:
        answer: tuple[Any, ...] = ("rows", rows(query))
    except (sqlite3.Error, OverflowError, UnicodeError, MemoryError) as error:
        answer = ("error", f"{type(error).__name__}: {error}"[:TEXT_MAX])
    channel.sendall(codec.frame(codec.encode(answer)))


def rows(query: str) -> list[list[str]]:
    connection = sqlite3.connect("/workspace/db")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    found = connection.execute(query).fetchmany(ROWS_MAX)
    return [[str(value)[:TEXT_MAX] for value in row] for row in found]
