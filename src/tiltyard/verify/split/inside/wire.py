"""The tests' end of the way to the solution: requests out, replies in. Imports no Tiltyard.

A reply is hostile: it is decoded within bounds, and what is unexpected about it ends the test.
"""

import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import codec
from channel import Channel

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
KEEP_OBJECTS = -1
FORWARDED = frozenset({"__name__"})
MAY_END = frozenset({"next", "send", "throw"})
MUTABLE = (list, dict, set, bytearray)


class SolutionGone(BaseException):
    """The solution ended, or broke its protocol. Not an Exception, so that no test can expect it
    by accident."""


class RefusedError(TypeError):
    """A test does what it cannot do with the solution. It fails, also if it expects just that."""


class Place(NamedTuple):
    """Where what a proxy stands for is: with which solution, and under which number."""

    host: "Host"
    number: int
    kind: str


class Host(Channel):
    """The channel to the host, and through it to the solution."""

    def __init__(
        self,
        channel: socket.socket,
        *,
        handle: Callable[["Host", Any], codec.Handle],
        find: Callable[["Host", codec.Handle], Any],
        exception: Callable[..., Exception],
        function: Callable[["Host", int, str], Any],
    ) -> None:
        """`handle` says how what is no plain value goes to the solution; `find` what stands here
        for an object there, `function` for a function; `exception` makes one of what was raised."""
        super().__init__(channel)
        self.handle = handle
        self.find = find
        self.exception = exception
        self.function = function
        self.collecting = True
        self.inplace = False
        self.names: list[str] | None = None
        """What `import *` brings; None: to be asked for."""
        self.test = ""
        """Id of the test that runs now."""
        self.deciding: set[str] = set()
        """Where the reference's objects decide something: see `may_decide`."""
        self.deciding_fixed = False
        self.spoilt: BaseException | None = None
        """Why the test that runs now cannot pass any more, whatever it catches."""
        self.objects: dict[int, Any] = {}
        self.errors: dict[int, type[Exception]] = {}

    def receive(self) -> Any:
        length = int.from_bytes(self.exactly(4), "little")
        if length > MESSAGE_BYTES_MAX:
            raise self.spoil(SolutionGone("a message over the bound"))
        return codec.decode(self.exactly(length))

    def spoil(self, error: BaseException) -> BaseException:
        self.spoilt = self.spoilt or error
        return error

    def may_decide(self, what: str) -> bool:
        """Whether an object of the solution may decide `what` in this test: where the reference's
        does. Elsewhere the solution would give an object for the value that is due, to be told what
        is expected, or to hide that a test failed."""
        if not self.deciding_fixed:
            self.deciding.add(f"{self.test} {what}")
        elif f"{self.test} {what}" not in self.deciding:
            self.spoil(RefusedError(f"an object of the solution may not decide by {what} here"))
            return False
        return True

    @contextmanager
    def collected(self) -> Iterator[None]:
        """For an attribute that is looked up. While pytest collects tests, it looks up many of
        everything that a test file imported: then a solution that is gone just has none."""
        try:
            yield
        except SolutionGone:
            if self.collecting:
                raise AttributeError from None
            raise

    def forged(self) -> BaseException:
        return self.spoil(SolutionGone("a reply outside the protocol"))

    def ask(self, *request: Any) -> tuple[Any, ...]:
        """What the solution answered, as a decoded tuple."""
        try:
            encoded = codec.encode(request, lambda value: self.handle(self, value))
        except codec.BadValueError as error:
            raise self.spoil(RefusedError(f"this cannot go to the solution: {error}")) from None
        self.send(("ask", encoded))
        kind, payload = self.receive()
        if kind == "gone":
            raise self.spoil(SolutionGone(payload))
        try:
            reply = codec.decode(payload, lambda handle: self.find(self, handle))
        except codec.BadBytesError as error:
            raise self.spoil(SolutionGone(f"a forged reply: {error}")) from None
        if type(reply) is not tuple or not reply or type(reply[0]) is not str:
            raise self.forged()
        answered: tuple[Any, ...] = reply
        return answered

    def call(self, target: int, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Calls in the solution's process. An empty name calls the object itself."""
        keywords = dict(kwargs)
        reply = self.ask("call", target, name, tuple(args), keywords, KEEP_OBJECTS, self.inplace)
        given = [*args, *keywords.values()] if self.inplace else []
        return self.result_of(reply, given, may_end=name in MAY_END)

    def do(self, operation: str, *args: Any) -> Any:
        """One of the candidate's operations."""
        reply = self.ask("do", operation, args)
        return self.result_of(reply, [], may_end=operation in MAY_END)

    def result_of(self, reply: tuple[Any, ...], given: list[Any], *, may_end: bool = False) -> Any:
        """The value of a reply, or the exception in it; `given` then is as the solution left it.

        Only what `may_end` raises StopIteration: from a call it would end a loop of the test's own.
        """
        match reply:
            case ("value", value, now):
                self.renew_all(given, now)
                return value
            case ("raised", list(names), str(message), args, error, int(number), now):
                self.renew_all(given, now)
                raised = self.exception(self, names, message, args, error, number)
            case ("raised", list(names), str(message), now):  # the rest of it may not cross
                self.renew_all(given, now)
                raised = self.exception(self, names, message, None, None, 0)
            case ("bad", *why):
                words = [each for each in why if type(each) is str]
                raise self.spoil(SolutionGone(f"a value that may not cross: {words}"))
            case _:
                raise self.forged()
        if isinstance(raised, StopIteration) and not may_end:
            raise RuntimeError("the solution raised StopIteration")
        raise raised

    def renew_all(self, given: list[Any], now: Any) -> None:
        if not given or now is None:
            return
        if type(now) not in (list, tuple) or len(now) != len(given):
            raise self.forged()
        for own, new in zip(given, now, strict=True):
            renewed(own, new)

    def get(self, target: int, name: str) -> Any:
        """An attribute. Raises AttributeError."""
        reply = self.ask("get", target, name)
        if reply == ("missing",):
            raise AttributeError(name)
        if reply == ("callable",):
            return self.function(self, target, name)
        return self.result_of(reply, [])


def renewed(own: Any, new: Any) -> Any:
    """`own`, made equal to `new` in place, if it is of a mutable builtin type; else `new`."""
    kind = type(own)
    if kind is not type(new) or kind not in MUTABLE:
        return new
    if kind is list:
        fresh = [renewed(*pair) for pair in zip(own, new, strict=False)]
        own[:] = fresh + new[len(fresh) :]
    elif kind is dict:
        items = {key: renewed(own[key], each) if key in own else each for key, each in new.items()}
        own.clear()
        own.update(items)
    elif kind is set:
        own.clear()
        own.update(new)
    else:
        own[:] = new
    return own


def place_of(thing: Any) -> Place | None:
    """Of a proxy, what it stands for; None of anything else."""
    place = vars(thing).get("_tiltyard") if hasattr(type(thing), "_tiltyard_proxy") else None
    return place if type(place) is Place else None


def check_name(name: str) -> None:
    """Raises AttributeError for a name that Python and pytest look up on their own account."""
    if name not in FORWARDED and name.startswith(("__", "_pytest", "pytest")):
        raise AttributeError(name)
