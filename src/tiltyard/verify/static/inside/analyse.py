"""Reads the sources of a solution with tools, and runs none of them. Runs inside.

One message is a u32 length and one encoded value. The trusted side sends requests in order and gets
one reply each, in order:

    ("files", suffix, [[path, source], ...])  -> ("taken",)
    ("run", tool)                             -> report | failed

    report: ("report", {name: number}, [[code, message, path, line, value or None], ...])
    failed: ("failed", message)      the tool gave up on these sources
    absent: ("absent", message)      this machine does not have the tool

A source may crash or exhaust a tool: the reply is then missing, and the trusted side sees how the
run ended.
"""

import socket
from collections.abc import Callable
from typing import Any

import compilers
import linters
import python_source
from channel import Channel

Files = list[tuple[str, bytes]]
PYTHON: dict[str, Callable[[Files], Any]] = {
    "syntax": python_source.syntax,
    "size": python_source.size,
    "dynamic_code": python_source.dynamic_code,
    "complexity": python_source.complexity,
    "security": linters.security,
    "style": linters.style,
}
MESSAGE_CHARACTERS_MAX = 300


def serve(channel: socket.socket) -> None:
    """Answers requests until the trusted side has no more."""
    host = Channel(channel)
    files: Files = []
    suffix = ""
    while True:
        request = host.receive()
        if request[0] == "files":
            suffix = request[1]
            files = [(path, one_line_end(source)) for path, source in request[2]]
            reply: Any = ("taken",)
        else:
            reply = answer(request[1], suffix, files)
        host.send(reply)


def one_line_end(source: bytes) -> bytes:
    """With the line ends that every tool counts; to a compiler a lone return is one as well."""
    return source.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def answer(tool: str, suffix: str, files: Files) -> Any:
    """The reply to one request to run a tool."""
    try:
        if suffix == ".py":
            return PYTHON[tool](files)
        return compilers.TOOLS[tool](files, suffix)
    except compilers.AbsentError as error:
        return ("absent", str(error))
    except (KeyboardInterrupt, SystemExit):
        return ("failed", "the tool ended")
    except Exception as error:  # noqa: BLE001 - the sources are hostile: any error of a tool is theirs
        return ("failed", f"{type(error).__name__}: {error}"[:MESSAGE_CHARACTERS_MAX])
