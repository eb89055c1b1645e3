"""Says what a sandbox looks like from inside: one JSON question as argument, one JSON answer out.

Run in the agent's own sandbox, so its answer is worth what that sandbox is: it says values, and
what they should be is known outside only.

    ["processes"]                  -> [[pid, command line], ...]
    ["port", number]               -> true when something accepts a connection
    ["http", number, path, bytes]  -> [status, body as base64, at most so many bytes]
"""

import base64
import http.client
import json
import os
import signal
import socket
import sys

PROCESSES_MAX = 4096
COMMAND_BYTES_MAX = 4096
COMMANDS_BYTES_MAX = 512 * 1024
"""Of all command lines together; of further processes only the number is told."""
PATIENCE_S = 5.0
WHOLE_S = 10
"""A probe ends itself: whoever ends it from outside ends the sandbox's daemons with it, which
further checks are about."""


def processes() -> list[list[object]]:
    found: list[list[object]] = []
    left = COMMANDS_BYTES_MAX
    own = os.getpid()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own or len(found) == PROCESSES_MAX:
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[:1]
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read(min(left, COMMAND_BYTES_MAX))
        except OSError:
            continue  # it ended meanwhile
        left -= len(words)
        if state != [b"Z"]:
            found.append([int(name), words.replace(b"\0", b" ").decode("utf-8", "replace").strip()])
    return found


def port(number: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", number), PATIENCE_S).close()
    except OSError:
        return False
    return True


def answered(number: int, path: str, most: int) -> list[object]:
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=PATIENCE_S)
    connection.request("GET", path, headers={"Accept-Encoding": "identity"})
    response = connection.getresponse()
    return [response.status, base64.b64encode(response.read(most)).decode()]


def main() -> None:
    signal.alarm(WHOLE_S)
    kind, *rest = json.loads(sys.argv[1])
    if kind == "processes":
        answer: object = processes()
    else:
        answer = port(*rest) if kind == "port" else answered(*rest)
    print(json.dumps(answer))  # noqa: T201 - its answer


main()
