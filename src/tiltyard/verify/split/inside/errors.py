"""Classes that stand for the solution's own classes of exceptions, and what it raised.

Each has the name and the builtin ancestors of the solution's, so that `except` and `pytest.raises`
work. Imports no Tiltyard.
"""

import builtins
from typing import Any

from wire import Host, Place, check_name, place_of

LINEAGE_MAX = 64


class SolutionError(Exception):
    """The solution raised something that is no builtin exception, or one that steers test runs."""


class ErrorClass(type):
    """The class of a class of exceptions of the solution."""

    _tiltyard_proxy = True

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        place: Any = vars(cls).get("_tiltyard")
        if type(place) is not Place:  # a subclass that the tests define
            return super().__call__(*args, **kwargs)
        made = place.host.call(place.number, "", args, kwargs)
        if place_of(made) is None:
            raise place.host.forged()
        return error_of(cls, str(made), made.args, made)

    def __getattr__(cls, name: str) -> Any:
        check_name(name)
        for kind in cls.__mro__:
            place: Any = vars(kind).get("_tiltyard")
            if type(place) is Place:
                return place.host.get(place.number, name)
        raise AttributeError(name)


def error_text(self: Any) -> str:
    text: str = vars(self).get("_tiltyard_text") or Exception.__str__(self)
    return text


def error_attribute(self: Any, name: str) -> Any:
    place = vars(self).get("_tiltyard")
    check_name(name)
    if type(place) is not Place or name.startswith("_tiltyard"):
        raise AttributeError(name)
    return place.host.get(place.number, name)


def error_class(host: Host, number: int) -> type[Exception]:
    """The class that stands here for a class of exceptions of the solution."""
    if number in host.errors:
        return host.errors[number]
    reply = host.ask("class", number)
    if len(reply) != 2 or type(reply[1]) is not list or not 0 < len(reply[1]) <= LINEAGE_MAX:
        raise host.forged()
    made: dict[int, type[Exception]] = {}
    for place, entry in reversed(list(enumerate(reply[1]))):
        match entry:
            case (0, str(name), [*_]):
                made[place] = builtin_error(name) or SolutionError
            case (int(own), str(name), [*bases]):
                parents = [made[base] for base in bases if type(base) is int and base in made]
                if own not in host.errors:
                    host.errors[own] = new_error_class(Place(host, own, name), parents)
                made[place] = host.errors[own]
            case _:
                raise host.forged()
    if number not in host.errors:
        # Another name for a builtin class. One that would also catch what a test itself finds wrong
        # is one of the solution's own here.
        if made[0] in (Exception, AssertionError, SolutionError):
            made[0] = new_error_class(Place(host, number, "Exception"), [])
        host.errors[number] = made[0]
    return host.errors[number]


def new_error_class(place: Place, parents: list[type[Exception]]) -> type[Exception]:
    name = place.kind if place.kind.isidentifier() and place.kind.isascii() else "SolutionError"
    body = {
        "_tiltyard": place,
        "_tiltyard_proxy": True,
        "__test__": False,
        "__str__": error_text,
        "__getattr__": error_attribute,
    }
    made: Any
    try:
        made = ErrorClass(name[:100], tuple(dict.fromkeys(parents)) or (SolutionError,), body)
    except TypeError:  # bases that do not go together: forged
        made = ErrorClass("SolutionError", (SolutionError,), body)
    return made


def builtin_error(name: Any) -> type[Exception] | None:
    """A builtin exception by its name; none that steers a test run."""
    kind = getattr(builtins, name, None) if isinstance(name, str) else None
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else None


def exception_of(
    host: Host, names: list[Any], message: str, args: Any, error: Any, number: int
) -> Exception:
    """What the solution raised, as near as there is a class for it here."""
    told = args if type(args) is tuple else (message,)
    if number:
        return error_of(error_class(host, number), message, told, error)
    for kind in filter(None, map(builtin_error, names)):
        for given in (told, (message,)):
            try:
                return kind(*given)
            except (TypeError, ValueError):  # some builtin exceptions want more than a message
                continue
    return SolutionError(message)


def error_of(kind: Any, message: str, args: Any, thing: Any) -> Exception:
    """An exception of the solution's own class; `thing` is the exception there."""
    told = args if type(args) is tuple else (message,)
    try:
        made: Exception = kind.__new__(kind, *told)
    except (TypeError, ValueError):
        made = SolutionError.__new__(SolutionError)
    made.args = told
    vars(made)["_tiltyard_text"] = message
    place = place_of(thing)
    if place is not None:
        vars(made)["_tiltyard"] = place
    return made
