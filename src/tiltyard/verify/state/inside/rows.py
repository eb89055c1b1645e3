"""Asks an SQLite file one question. Runs in a sandbox of the verifier's: the file is hostile.

from the host: ("rows", database, its write-ahead log or b"", query)
to the host:   ("rows", [[text, ...], ...]) | ("error", words)
"""

import socket
import sqlite3
from typing import Any

from channel import Channel

ROWS_MAX = 1000
TEXT_MAX = 4096


def serve(channel: socket.socket) -> None:
    """Answers one question."""
    host = Channel(channel)
    _, database, log, query = host.receive()
    for name, content in (("db", database), ("db-wal", log)):
        if content:
            with open(f"/workspace/{name}", "wb") as file:
                file.write(content)
    try:
        answer: tuple[Any, ...] = ("rows", rows(query))
    except (sqlite3.Error, OverflowError, UnicodeError, MemoryError) as error:
        answer = ("error", f"{type(error).__name__}: {error}"[:TEXT_MAX])
    host.send(answer)


def rows(query: str) -> list[list[str]]:
    connection = sqlite3.connect("/workspace/db")
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    # One more than are ever expected, so that the first of many are not taken for all.
    found = connection.execute(query).fetchmany(ROWS_MAX + 1)
    return [[str(value)[:TEXT_MAX] for value in row] for row in found]
