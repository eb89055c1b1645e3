"""The solution's side of split mode, run inside; imports no Tiltyard. It says no verdicts.

One message is a u32 length and one encoded value. The trusted side sends requests in order, the
first one the solution's source, and gets one reply each, in order:

    ("load", module name, source)                    -> ("loaded",) | raised
    ("get", object, name)                            -> callable | value | object | missing
    ("call", object, name, args, kwargs, keep, echo) -> value | object | kept | raised

    value:  ("value", v, the arguments as they are after the call or None)
    object: ("object", its number, type name)   what may not cross stays here under a number
    kept:   ("kept", type name, the arguments as they are after the call or None)
    raised: ("raised", names of its builtin classes, message, the arguments or None)
    any:    ("bad", "type" or "size", message)  a value that may not cross

`object` 0 is the solution's module. `keep` over 0: the result stays here under that number; -1: it
stays when it may not cross; 0: it must cross. The solution shares this process and may do to it
what it likes: all that it can forge is values, which it could have returned anyway.
"""

import builtins
import socket
import sys
import types
from collections.abc import Sequence
from typing import Any

import codec

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
TEXT_CHARACTERS_MAX = 500
KEEP_OBJECTS = -1
FIRST_OBJECT = 1_000_000


def serve(channel: socket.socket) -> None:
    """Answers requests until the trusted side has no more."""
    objects: dict[int, Any] = {}
    received = bytearray()
    while True:
        # Mostly all requests are there at once, and one call takes them.
        while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "little"):
            if len(received) >= 4 and int.from_bytes(received[:4], "little") > MESSAGE_BYTES_MAX:
                return
            part = channel.recv(1 << 20)
            if not part:
                return
            received += part
        end = 4 + int.from_bytes(received[:4], "little")
        request = codec.decode(bytes(received[4:end]))
        del received[:end]
        # Each answer leaves at once: what a later call does to this process must not take it along.
        channel.sendall(codec.frame(answer(objects, request)))


def answer(objects: dict[int, Any], request: Any) -> bytes:
    """The encoded reply to one request."""
    try:
        if request[0] == "load":
            return load(objects, *request[1:])
        if request[0] == "get":
            return get(objects, *request[1:])
        return call(objects, *request[1:])
    except codec.TooLargeError as error:
        return codec.encode(("bad", "size", str(error)))
    except codec.BadValueError as error:
        return codec.encode(("bad", "type", str(error)[:TEXT_CHARACTERS_MAX]))
    except BaseException as error:  # noqa: BLE001 - whatever the solution raises is its answer
        return raised(error)


def raised(error: BaseException, echo: Sequence[Any] | None = None) -> bytes:
    try:
        names = [
            kind.__name__
            for kind in type(error).__mro__
            if kind is not object and getattr(builtins, kind.__name__, None) is kind
        ]
        return codec.encode(("raised", names, str(error)[:TEXT_CHARACTERS_MAX], echo))
    except BaseException:  # noqa: BLE001 - its class and its __str__ may raise or return anything
        return codec.encode(("raised", [], "", None))


def load(objects: dict[int, Any], name: str, source: bytes) -> bytes:
    module = types.ModuleType(name)
    module.__file__ = f"/workspace/{name}.py"
    with open(module.__file__, "wb") as file:
        file.write(source)
    sys.modules[name] = module
    sys.path.insert(0, "/workspace")
    objects[0] = module
    exec(compile(source, module.__file__, "exec"), module.__dict__)  # noqa: S102 - its very purpose
    return codec.encode(("loaded",))


def get(objects: dict[int, Any], target: int, name: str) -> bytes:
    try:
        value = getattr(objects[target], name)
    except AttributeError:
        return codec.encode(("missing",))
    if callable(value):
        return codec.encode(("callable",))
    return value_or_object(objects, value, None)


def call(
    objects: dict[int, Any],
    target: int,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    keep: int,
    echo: bool,  # noqa: FBT001 - a field of the request
) -> bytes:
    try:
        result = getattr(objects[target], name)(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - whatever the solution raises is its answer
        return raised(error, args if echo else None)
    if keep > 0:
        objects[keep] = result
        kind = type(result).__name__[:TEXT_CHARACTERS_MAX]
        return codec.encode(("kept", kind, args if echo else None))
    if keep == KEEP_OBJECTS:
        return value_or_object(objects, result, args if echo else None)
    return codec.encode(("value", result, args if echo else None))


def value_or_object(objects: dict[int, Any], value: Any, echo: Sequence[Any] | None) -> bytes:
    try:
        return codec.encode(("value", value, echo))
    except codec.TooLargeError:
        raise
    except codec.BadValueError:
        number = FIRST_OBJECT + len(objects)
        objects[number] = value
        return codec.encode(("object", number, type(value).__name__[:TEXT_CHARACTERS_MAX]))
