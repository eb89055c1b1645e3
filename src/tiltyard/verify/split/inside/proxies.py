"""What ordinary tests hold instead of the solution and its objects. Imports no Tiltyard.

Plain values cross as they are. Everything else of the solution's stays with it, and here stands an
`Object` that asks for what is done with it; a `Function`, that is called by its name; or, for a
class of exceptions, a class of the same name and of the same builtin ancestors, so that `except`
and `pytest.raises` work. Nothing that decides about a value by itself is passed on: no equality, no
order, no hash, no arithmetic, because the solution would be asked whether it is right, and would
be told what is expected.
"""

import builtins
import functools
import keyword
import socket
import types
from collections.abc import Callable, Mapping
from typing import Any

import codec
from errors import ErrorClass, error_class, exception_of
from wire import Host, Place, RefusedError, SolutionGone, check_name, place_of

WORDS_MAX = 1000
NAMES_MAX = 1000
REFUSED = (
    *("eq", "ne", "lt", "le", "gt", "ge", "hash", "int", "float", "complex", "index", "round"),
    *("trunc", "floor", "ceil", "neg", "pos", "abs", "invert"),
    *(
        f"{side}{name}"
        for name in (
            *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
            *("lshift", "rshift", "and", "or", "xor"),
        )
        for side in ("", "r", "i")
    ),
)


class Function:
    """Something to call by its name in the solution's module or in one of its objects."""

    def __init__(self, host: Host, target: int, name: str) -> None:
        self.__dict__["_tiltyard"] = (host, target, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        host, target, name = self.__dict__["_tiltyard"]
        return host.call(target, name, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        check_name(name)
        host, target, own = self.__dict__["_tiltyard"]
        with host.collected():
            return getattr(host.do("hold", target, own), name)


class Object:
    """Something that stays with the solution. Its special methods are those that it has there."""

    _tiltyard_proxy = True

    def __init__(self, place: Place) -> None:
        self.__dict__["_tiltyard"] = place

    def __getattr__(self, name: str) -> Any:
        check_name(name)
        host, number, _ = self.__dict__["_tiltyard"]
        with host.collected():
            return host.get(number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        check_name(name)
        self.__dict__["_tiltyard"].host.do("setattr", self, name, value)

    def __delattr__(self, name: str) -> None:
        check_name(name)
        self.__dict__["_tiltyard"].host.do("delattr", self, name)

    def __str__(self) -> str:
        return text_of(self, "str")

    def __repr__(self) -> str:
        return text_of(self, "repr")


def text_of(thing: Object, operation: str) -> str:
    host = vars(thing)["_tiltyard"].host
    text = host.do(operation, thing)
    if type(text) is not str:
        raise host.forged()
    return text


def refusing(name: str) -> Callable[..., Any]:
    def refused(self: Object, *_: object) -> Any:
        place: Place = vars(self)["_tiltyard"]
        raise place.host.spoil(
            RefusedError(f"an object of the solution ({place.kind[:80]}) decides nothing by {name}")
        )

    return refused


for _name in REFUSED:
    setattr(Object, f"__{_name}__", refusing(f"__{_name}__"))


def doing(operation: str) -> Callable[..., Any]:
    def method(self: Object, *args: Any) -> Any:
        return vars(self)["_tiltyard"].host.do(operation, self, *args)

    return method


def calling(name: str) -> Callable[..., Any]:
    def method(self: Object, *args: Any, **kwargs: Any) -> Any:
        host, number, _ = vars(self)["_tiltyard"]
        return host.call(number, name, args, kwargs)

    return method


def leave(self: Object, kind: Any, error: Any, _trace: Any) -> bool:
    """The end of a `with` block. What a test found wrong cannot be suppressed by the solution: only
    its own exceptions can, and plain builtin ones."""
    host = vars(self)["_tiltyard"].host
    if error is None or isinstance(kind, ErrorClass):
        return hides(host, host.do("exit", self, error, None, ()), error)
    builtin = getattr(builtins, kind.__name__, None) is kind
    harmless = builtin and issubclass(kind, Exception) and not issubclass(kind, AssertionError)
    if not harmless or host.spoilt is not None:
        host.do("exit", self, None, "Exception", ("the block failed",))
        return False
    return hides(host, host.do("exit", self, None, kind.__name__, error.args), error)


def hides(host: Host, said: Any, error: Any) -> bool:
    return said is True and error is not None and host.may_decide("hiding an exception")


async def leave_async(self: Object, _kind: Any, error: Any, _trace: Any) -> bool:
    """The end of an `async with` block; it suppresses nothing."""
    if error is None:
        host, number, _ = vars(self)["_tiltyard"]
        await host.call(number, "__aexit__", (None, None, None), {})
    return False


def contains(self: Object, item: Any) -> bool:
    host = vars(self)["_tiltyard"].host
    return host.may_decide("what is in it") and host.do("contains", self, item) is True


class Awaited:
    """What makes an awaitable of the solution a coroutine here: one step, and it is done."""

    def send(self: Any, _: Any) -> Any:
        raise StopIteration(vars(self)["_tiltyard"].host.do("await", self))

    def throw(self, kind: Any, value: Any = None, _trace: Any = None) -> Any:
        raise value or kind

    def close(self) -> None:
        """There is nothing to close here."""

    def __hash__(self) -> int:  # asyncio keeps what it waits for in a dict
        return id(self)

    def __await__(self: Any) -> Any:
        yield from ()
        return vars(self)["_tiltyard"].host.do("await", self)


def is_instance(self: Object, value: Any) -> bool:
    """Of a class of the solution is only what came from the solution."""
    ours = issubclass(type(value), Object) or isinstance(type(value), ErrorClass)
    return ours and vars(self)["_tiltyard"].host.do("instance", value, self) is True


def is_subclass(self: Object, kind: Any) -> bool:
    ours = issubclass(type(kind), Object | ErrorClass)
    return ours and vars(self)["_tiltyard"].host.do("subclass", kind, self) is True


SPECIAL: dict[str, Mapping[str, Any]] = {
    "call": {"__call__": calling("")},
    "contains": {"__contains__": contains},
    "exit": {"__exit__": leave},
    "await": dict(vars(Awaited)),
    "aexit": {"__aexit__": leave_async},
    "class": {
        "__instancecheck__": is_instance,
        "__subclasscheck__": is_subclass,
        "__mro_entries__": refusing("being a base of a class"),
    },
    **{
        name: {f"__{name}__": doing(name)}
        for name in (*("len", "iter", "next", "getitem", "setitem", "delitem", "bool", "reversed"),)
    },
    **{name: {f"__{name}__": calling(f"__{name}__")} for name in ("enter", "aenter")},
    **{name: {f"__{name}__": calling(f"__{name}__")} for name in ("aiter", "anext")},
}
"""By trait, what an object with it can do."""


@functools.lru_cache(maxsize=256)
def object_class(traits: frozenset[str]) -> type[Object]:
    methods: dict[str, Any] = {}
    for trait in traits & SPECIAL.keys():
        methods.update(SPECIAL[trait])
    for name in ("__dict__", "__weakref__", "__doc__", "__module__"):
        methods.pop(name, None)
    return type("Object", (Object,), methods)


class Solution(types.ModuleType):
    """The proxy that tests import.

    Importing a name never fails, so that which tests exist does not depend on the solution;
    calling what is not there does.
    """

    def __init__(self, name: str, host: Host) -> None:
        super().__init__(name)
        self.__dict__["_tiltyard"] = host

    def __getattr__(self, name: str) -> Any:
        host: Host = self.__dict__["_tiltyard"]
        if name == "__all__":
            if host.names is None:
                host.names = public_names(host)
            return list(host.names)
        check_name(name)
        try:
            return host.get(0, name)
        except (Exception, SolutionGone):  # noqa: BLE001 - whatever the solution makes of it
            return Function(host, 0, name)


def public_names(host: Host) -> list[str]:
    """What the solution says that `import *` brings."""
    names = host.do("names")
    if type(names) is not list or len(names) > NAMES_MAX:
        raise host.forged()
    return [
        name
        for name in names
        if type(name) is str
        and name.isidentifier()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
    ]


def handle_of(host: Host, value: Any) -> codec.Handle:
    """How something that is no plain value goes to the solution: only if it came from there."""
    if type(value) is Function:
        _, target, name = vars(value)["_tiltyard"]
        return handle_of(host, host.do("hold", target, name))
    place = place_of(value)
    if place is not None:
        return codec.Handle(place.number, place.kind, "")
    what = f"a value of type {type(value).__name__}"
    if isinstance(value, types.FunctionType | types.MethodType | type):
        what = f"{value.__name__}, which is of the tests and would have to run there,"
    raise host.spoil(RefusedError(f"{what} cannot go to the solution"))


def proxy_of(host: Host, handle: codec.Handle) -> Any:
    """What stands here for an object of the solution: the same for the same one."""
    if handle.number not in host.objects:
        traits = frozenset(handle.traits.split()[: len(SPECIAL) + 2])
        if "error" in traits:
            return error_class(host, handle.number)
        host.objects[handle.number] = object_class(traits)(
            Place(host, handle.number, handle.kind[:WORDS_MAX])
        )
    return host.objects[handle.number]


def opened(channel: socket.socket) -> Host:
    """The way to the solution over the host's channel."""
    return Host(channel, handle=handle_of, find=proxy_of, exception=exception_of, function=Function)
