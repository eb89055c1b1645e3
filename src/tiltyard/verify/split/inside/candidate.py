"""The solution's side of split mode, run inside; imports no Tiltyard. It says no verdicts.

One message is a u32 length and one encoded value. The trusted side sends requests in order, the
first one the solution's source, and gets one reply each, in order:

    ("load", module name, source)                    -> ("loaded",) | raised
    ("call", object, name, args, kwargs, keep, echo) -> value | kept | raised
    ("get", object, name)                            -> value | callable | missing | raised
    ("do", operation, args)                          -> value | raised    (see `OPERATIONS`)
    ("class", object)                                -> ("class", its lineage)    (see `lineage`)

    value:  ("value", v, the arguments as they are after the call or None)
    kept:   ("kept", type name, the arguments as they are after the call or None)
    raised: ("raised", names of its builtin classes, message, the arguments or None)
    callable, missing: ("callable",), ("missing",)
    any:    ("bad", "type" or "size", message)  a value that may not cross

`object` 0 is the solution's module; an empty name calls the object itself. `keep` over 0: the
result stays here under that number; 0: it must cross. -1 is for ordinary tests, and `get` and `do`
are as if they had it: what may not cross stays here, also inside of containers, and a
`codec.Handle` crosses in its place; `raised` then is ("raised", names, message, the exception's
args, its handle, number of its class or 0, the arguments or None). The solution shares this
process and may do to it what it likes: all that it can forge is values, which it could have
returned anyway.
"""

import builtins
import functools
import operator
import socket
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import codec

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
TEXT_CHARACTERS_MAX = 500
KEEP_OBJECTS = -1
FIRST_OBJECT = 1_000_000
LINEAGE_MAX = 64
FUNCTIONS = types.FunctionType | types.BuiltinFunctionType | types.MethodType
SPECIAL = (
    *("call", "len", "iter", "next", "getitem", "setitem", "delitem", "contains", "bool"),
    *("reversed", "enter", "exit", "await", "aiter", "anext", "aenter", "aexit"),
)
"""The special methods of which a handle says whether there are any."""


class Objects:
    """What stays here, by number. The same object always has the same one."""

    def __init__(self) -> None:
        self.by_number: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}

    def number_of(self, value: Any) -> int:
        number = self.numbers.get(id(value))
        if number is None:
            number = self.numbers[id(value)] = FIRST_OBJECT + len(self.numbers)
            self.by_number[number] = value
        return number

    def handle(self, value: Any) -> codec.Handle:
        kind = type(value)
        traits = [name for name in SPECIAL if hasattr(kind, f"__{name}__")]
        if isinstance(value, type):
            traits.append("error" if issubclass(value, BaseException) else "class")
        name = kind.__name__[:TEXT_CHARACTERS_MAX]
        return codec.Handle(self.number_of(value), name, " ".join(traits))

    def find(self, handle: codec.Handle) -> Any:
        return self.by_number[handle.number]

    def encode(self, said: Any) -> bytes:
        return codec.encode(said, self.handle)


def serve(channel: socket.socket) -> None:
    """Answers requests until the trusted side has no more."""
    objects = Objects()
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
        request = codec.decode(bytes(received[4:end]), objects.find)
        del received[:end]
        # Each answer leaves at once: what a later call does to this process must not take it along.
        channel.sendall(codec.frame(answer(objects, request)))


def answer(objects: Objects, request: Any) -> bytes:
    """The encoded reply to one request."""
    kind, *rest = request
    try:
        if kind == "call":
            return call(objects, *rest)
        if kind == "get":
            return get(objects, *rest)
        if kind == "do":
            return do(objects, *rest)
        if kind == "class":
            return codec.encode(("class", lineage(objects, *rest)))
        return load(objects, *rest)
    except codec.TooLargeError as error:
        return codec.encode(("bad", "size", str(error)))
    except codec.BadValueError as error:
        return codec.encode(("bad", "type", str(error)[:TEXT_CHARACTERS_MAX]))
    except BaseException as error:  # noqa: BLE001 - whatever the solution raises is its answer
        return raised(error)


def raised(error: BaseException, echo: Sequence[Any] | None = None) -> bytes:
    try:
        return codec.encode(("raised", names_of(error), str(error)[:TEXT_CHARACTERS_MAX], echo))
    except BaseException:  # noqa: BLE001 - its class and its __str__ may raise or return anything
        return codec.encode(("raised", [], "", None))


def raised_object(
    objects: Objects, error: BaseException, echo: Sequence[Any] | None = None
) -> bytes:
    """As `raised`, with what an ordinary test may want to know of an exception."""
    try:
        kind = type(error)
        number = 0 if is_builtin(kind) else objects.number_of(kind)
        text = str(error)[:TEXT_CHARACTERS_MAX]
        said = ("raised", names_of(error), text, error.args, error, number, echo)
        return objects.encode(said)
    except BaseException:  # noqa: BLE001 - as above
        return raised(error)


def names_of(error: BaseException) -> list[str]:
    return [kind.__name__ for kind in type(error).__mro__ if is_builtin(kind)]


def is_builtin(kind: type) -> bool:
    return kind is not object and getattr(builtins, kind.__name__, None) is kind


def load(objects: Objects, name: str, source: bytes) -> bytes:
    module = types.ModuleType(name)
    module.__file__ = f"/workspace/{name}.py"
    with open(module.__file__, "wb") as file:
        file.write(source)
    sys.modules[name] = module
    sys.path.insert(0, "/workspace")
    objects.by_number[0] = module
    objects.numbers[id(module)] = 0
    exec(compile(source, module.__file__, "exec"), module.__dict__)  # noqa: S102 - its very purpose
    return codec.encode(("loaded",))


def get(objects: Objects, target: int, name: str) -> bytes:
    try:
        value = getattr(objects.by_number[target], name)
    except AttributeError:
        return codec.encode(("missing",))
    except BaseException as error:  # noqa: BLE001 - a property's answer
        return raised_object(objects, error)
    if isinstance(value, FUNCTIONS):
        return codec.encode(("callable",))
    return objects.encode(("value", value, None))


def call(
    objects: Objects,
    target: int,
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
    keep: int,
    echo: bool,  # noqa: FBT001 - a field of the request
) -> bytes:
    everything = [*args, *kwargs.values()] if keep == KEEP_OBJECTS else args
    try:
        owner = objects.by_number[target]
        result = (getattr(owner, name) if name else owner)(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - whatever the solution raises is its answer
        changed = everything if echo else None
        if keep == KEEP_OBJECTS:
            return raised_object(objects, error, changed)
        return raised(error, changed)
    if keep > 0:
        objects.by_number[keep] = result
        kind = type(result).__name__[:TEXT_CHARACTERS_MAX]
        return codec.encode(("kept", kind, args if echo else None))
    said = ("value", result, everything if echo else None)
    return objects.encode(said) if keep == KEEP_OBJECTS else codec.encode(said)


def do(objects: Objects, operation: str, args: Sequence[Any]) -> bytes:
    try:
        result = OPERATIONS[operation](objects, *args)
    except BaseException as error:  # noqa: BLE001 - whatever the solution raises is its answer
        return raised_object(objects, error)
    return objects.encode(("value", result, None))


def lineage(objects: Objects, number: int) -> list[tuple[int, str, list[int]]]:
    """A class and all that it comes from, as (number, name, places of its bases in this list); a
    builtin one has number 0 and no bases."""
    kinds = [kind for kind in objects.by_number[number].__mro__ if kind is not object]
    kinds = kinds[:LINEAGE_MAX]
    places = {kind: place for place, kind in enumerate(kinds)}
    return [
        (0, kind.__name__, [])
        if is_builtin(kind)
        else (
            objects.number_of(kind),
            kind.__name__[:TEXT_CHARACTERS_MAX],
            [places[base] for base in kind.__bases__ if base in places],
        )
        for kind in kinds
    ]


def names(objects: Objects) -> list[str]:
    """What `from solution import *` brings; without `__all__` nothing that the solution itself only
    imports, which could be what a test imports from elsewhere."""
    module = vars(objects.by_number[0])
    own = module["__name__"]
    public = [
        name
        for name, value in module.items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and not (isinstance(value, type | FUNCTIONS) and value.__module__ != own)
    ]
    return [str(name) for name in module.get("__all__", public)]


def leave(
    _objects: Objects, manager: Any, error: Any, name: str | None, args: Sequence[Any]
) -> bool:
    """The end of a `with` block, which raised `error`, or a builtin exception of that name, or
    nothing."""
    if name is not None:
        error = getattr(builtins, name)(*args)
    return bool(manager.__exit__(None if error is None else type(error), error, None))


def wait(_objects: Objects, awaitable: Any) -> Any:
    """Runs something awaitable to its end, on one loop for all of them."""
    import asyncio  # here, because few solutions need it, and each run would pay for it

    async def waiting() -> Any:
        return await awaitable

    return event_loop(asyncio.new_event_loop).run_until_complete(waiting())


@functools.cache
def event_loop(make: Callable[[], Any]) -> Any:
    return make()


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operation that needs no objects but those that it is given."""
    return lambda _, *args: function(*args)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "names": names,
    "hold": lambda objects, target, name: getattr(objects.by_number[target], name),
    "exit": leave,
    "await": wait,
    "setattr": plain(setattr),
    "delattr": plain(delattr),
    "instance": plain(lambda value, kind: kind in type(value).__mro__),
    "subclass": plain(lambda value, kind: kind in value.__mro__),
    **{name: plain(getattr(builtins, name)) for name in ("len", "str", "repr", "bool")},
    **{name: plain(getattr(builtins, name)) for name in ("iter", "next", "reversed")},
    **{
        name: plain(getattr(operator, name))
        for name in ("getitem", "setitem", "delitem", "contains")
    },
}
