"""Runs a project's tests in one process with the project. Runs inside; imports no Tiltyard.

Messages are a u32 length and one encoded value:

    from the host: ("run", [paths], [sizes], [test files], [import directories]), then the files'
                   bytes one after the other
    to the host:   ("result", test id, status, words)   as in `recorder.py`
                   ("end", [collected test ids], words about collection errors)

The project shares this process and may forge any of it. Which tests must fail is not known here.
"""

import os
import socket
import sys

from channel import Channel
from recorder import Recorder, options, pytest, warm_up

WORKSPACE = "/workspace"
# A project may have modules of these names; it must not find ours in their place.
OURS = ("channel", "codec", "recorder")
RUNNERS = {"pytest", "_pytest", "pluggy"}


def forget(paths: list[str], places: list[str]) -> None:
    """Has the project's modules found where pytest has loaded others of the same name already."""
    own = set()
    for place in places:
        below = "" if place == "." else f"{place}/"
        inner = (path.removeprefix(below) for path in paths if path.startswith(below))
        own |= {path.partition("/")[0].removesuffix(".py") for path in inner}
    own -= RUNNERS | sys.stdlib_module_names
    for name in [name for name in sys.modules if name.partition(".")[0] in own]:
        del sys.modules[name]


def serve(channel: socket.socket) -> None:
    """One pytest session over the tests of one tree."""
    host = Channel(channel)
    _, paths, sizes, chosen, places = host.receive()
    for path, size in zip(paths, sizes, strict=True):
        target = os.path.join(WORKSPACE, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(host.exactly(size))
    os.chdir(WORKSPACE)
    sys.path[:0] = [os.path.normpath(os.path.join(WORKSPACE, place)) for place in places]
    forget(paths, places)
    heard = Recorder(host.send)
    arguments = [*options(WORKSPACE), f"--confcutdir={WORKSPACE}", *chosen]
    pytest.main(arguments, plugins=[heard])
    host.send(("end", heard.ids, "\n".join(heard.errors)))


warm_up()
for name in OURS:
    sys.modules.pop(name, None)
