"""A run's end of its channel to the host, where messages come one at a time. Runs inside.

A message is a u32 length and one encoded value.
"""

import os
import socket
from typing import Any

import codec


class Channel:
    """Ends the run when the host is done with it."""

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel

    def exactly(self, count: int) -> bytes:
        parts = []
        while count:
            part = self.channel.recv(min(count, 1 << 20))
            if not part:
                os._exit(0)  # the host is done with this run
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def receive(self) -> Any:
        return codec.decode(self.exactly(int.from_bytes(self.exactly(4), "little")))

    def send(self, message: Any) -> None:
        self.channel.sendall(codec.frame(codec.encode(message)))
