"""The measured side of a call, run inside; imports no Tiltyard. It measures nothing itself.

It answers as split mode's `candidate` does. Requests may also come as JSON, which costs a tenth of
the CPU time to read: a large input must not outweigh the work on it.
"""

import json
import socket

import candidate
import codec


def serve(channel: socket.socket) -> None:
    """Answers requests until there are no more."""
    objects = candidate.Objects()
    stream = channel.makefile("rb")
    while len(head := stream.read(4)) == 4:
        payload = stream.read(int.from_bytes(head, "little"))
        request = json.loads(payload) if payload[:1] == b"[" else codec.decode(payload)
        del payload
        reply = candidate.answer(objects, request)
        del request
        channel.sendall(codec.frame(reply))
