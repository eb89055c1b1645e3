"""What a kept interpreter serves in the hostile suite: a run executes the source that it is sent.

The prelude and the source come together over the channel, and what they say goes to the run's own
standard output. `random` is imported here on purpose: what a fork shares must show.
"""

import random
import socket
import traceback

MARKS: list[str] = []
"""Shared with the zygote before the fork: a write of one run must not show in the next."""
DRAWN = random.Random(1)  # noqa: S311 - only to see that it is imported before the fork


def serve(channel: socket.socket) -> None:
    """Runs one source."""
    header = channel.recv(4, socket.MSG_WAITALL)
    source = channel.recv(int.from_bytes(header, "little"), socket.MSG_WAITALL).decode()
    names = {"channel": channel, "MARKS": MARKS, "__name__": "__main__"}
    try:
        exec(source, names)  # noqa: S102 - a hostile program, inside its sandbox
    except BaseException:  # noqa: BLE001 - told to the host
        print(traceback.format_exc(), flush=True)  # noqa: T201 - the run's output
