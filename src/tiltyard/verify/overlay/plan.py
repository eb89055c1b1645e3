"""One run's tests: in which form it has each, under which names, and how ids lead back. Pure.

Names are of one form for all, drawn anew for every run, and keep the order that the tests had by
name. Which of them must fail is known only here.
"""

import bisect
import math
import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tiltyard.verify.overlay.canaries import Canary, Kind
from tiltyard.verify.overlay.source import Edit, SourceFile, TestFunction, edited

_PLACES = 1000
"""Between two tests in the order of names."""
_LOCATION = re.compile(r"(?P<file>[^/:]+\.py):(?P<line>[0-9]+): ")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tried:
    """A canary that did with the reference what it must."""

    canary: Canary
    beside: Mapping[tuple[str, str], frozenset[str]]
    """By where it runs and its parameters, such as `a.py::T::` and `[1-2]`: the ids of the task's
    tests that decide about it. Whoever passes those honestly fails this one, or passes it where
    it is no false one."""
    tests: int = 1
    """How many tests it is, with its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Forms:
    """In which form a run has each test function: as it is, unless said here."""

    false: Mapping[TestFunction, Tried] = field(default_factory=dict)
    written: Mapping[TestFunction, Tried] = field(default_factory=dict)
    """With what a test computes written out, in true forms and in false ones."""
    absent: frozenset[TestFunction] = frozenset()

    def true(self, function: TestFunction) -> bool:
        """Whether it has the function, in a form that a right solution passes."""
        return function not in self.false and function not in self.absent


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Plan:
    """What a run is given, and what its ids mean."""

    files: Mapping[str, bytes]
    """Test files that are other than the task's, by their path in the tree."""
    canaries: tuple[Tried | Canary, ...]
    forms: Forms
    ids: frozenset[str] = frozenset()
    """Of the task's tests that must pass here; empty where a suite is only being learned."""
    against: frozenset[str] = frozenset()
    """Of the task's tests that have a false form here."""
    chosen: tuple[str, ...] | None = None
    """The test files that run; None is all of them."""
    names: Mapping[str, str]
    """Names in the run of test functions that go by another one there."""
    by_name: Mapping[str, Canary]
    """The canaries by their names in the run."""
    lines: Mapping[str, tuple[tuple[int, int], ...]]
    """By path, where pieces of a file begin: their line in the run and in the task's file."""
    originals: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "originals", {new: old for old, new in self.names.items()})

    def in_run(self, test_id: str) -> str:
        """The id that a test of the task has in the run."""
        place, name, suffix = parts_of(test_id)
        return f"{place}{self.names.get(name, name)}{suffix}"

    def original(self, run_id: str) -> str:
        """The id of the task that an id of the run stands for; itself for a canary's."""
        place, name, suffix = parts_of(run_id)
        return f"{place}{self.originals.get(name, name)}{suffix}"

    def has(self, name: str, functions: frozenset[str]) -> bool:
        """Whether a function goes by this name in the run; `functions` are the suite's own."""
        if name in self.by_name or name in self.originals:
            return True
        return name in functions and name not in self.names

    def words(self, test_id: str, words: str) -> str:
        """Words about a failure with the task's own line numbers and names in them."""
        path = test_id.partition("::")[0]
        match = _LOCATION.match(words)
        if match and path.endswith(match["file"]) and path in self.lines:
            pieces, line = self.lines[path], int(match["line"][:9])
            run_line, own_line = pieces[bisect.bisect_right(pieces, (line, math.inf)) - 1]
            words = f"{match['file']}:{own_line + line - run_line}: {words[match.end() :]}"
        name = parts_of(test_id)[1]
        return words.replace(self.names.get(name, name), name)


def parts_of(test_id: str) -> tuple[str, str, str]:
    """Before the function's name, the name, and its parameters: `a.py::T::`, `test`, `[1]`."""
    head, bracket, rest = test_id.partition("[")
    place, colons, name = head.rpartition("::")
    return place + colons, name, bracket + rest


def plan_of(
    files: Mapping[str, SourceFile],
    canaries: Iterable[Canary],
    renamed: frozenset[str],
    rng: random.Random,
    *,
    forms: Forms | None = None,
) -> Plan:
    """Writes each test in its form, gives those in `renamed` a new name, and splices canaries
    beside their originals: that is for learning, where no solution but the reference reads it."""
    forms = forms or Forms()
    canaries = tuple(canaries)
    order = sorted({each.name for file in files.values() for each in file.functions})
    places = {name: (index + 1) * _PLACES for index, name in enumerate(order)}
    names = {name: _name(places[name] + rng.randrange(_PLACES), rng) for name in sorted(renamed)}
    by_name: dict[str, Canary] = {}
    copies: dict[TestFunction, list[tuple[str, Canary]]] = {}
    for canary in (*canaries, *(each.canary for each in forms.false.values())):
        name = _name(places[canary.function.name] + rng.randrange(_PLACES), rng)
        by_name[name] = canary
        copies.setdefault(canary.function, []).append((name, canary))
    texts: dict[str, bytes] = {}
    lines: dict[str, tuple[tuple[int, int], ...]] = {}
    for path, file in files.items():
        if file.functions:
            pieces = {each: _pieces(each, file, forms, names, copies) for each in file.functions}
            texts[path], lines[path] = _spliced(file, pieces)
    tried = (*forms.false.values(), *forms.written.values())
    return Plan(
        files=texts,
        canaries=(*canaries, *tried),
        names=names,
        by_name=by_name,
        lines=lines,
        forms=forms,
    )


def _name(place: int, rng: random.Random) -> str:
    return f"test_{place:09d}_{rng.getrandbits(32):08x}"


def _pieces(
    function: TestFunction,
    file: SourceFile,
    forms: Forms,
    names: Mapping[str, str],
    copies: Mapping[TestFunction, list[tuple[str, Canary]]],
) -> list[bytes]:
    """What stands in a function's place."""
    if function in forms.absent:
        start = function.start
        # A class must have something in it.
        column = function.node.col_offset
        indent = file.content[start : start + column]
        return [indent + b"pass\n"] if column else []
    tried = forms.written.get(function)
    written = tried.canary.edits if tried else ()
    pieces = []
    for name, each in copies.get(function, []):
        edits = together(each, written)
        pieces.append(_renamed(file, function, name, each.edits if edits is None else edits))
    if function not in forms.false:
        new = names.get(function.name, function.name)
        pieces.append(_renamed(file, function, new, written))
    return pieces


def together(false: Canary, written: tuple[Edit, ...]) -> tuple[Edit, ...] | None:
    """The edits of both; None where what is written out would undo what is false."""
    own = {(each.start, each.end) for each in false.edits}
    others = [each for each in written if (each.start, each.end) not in own]
    if others and false.kind is Kind.LITERAL and false.true is None:
        return None  # what is computed may come from the constant
    if any(each.start < end and start < each.end for each in others for start, end in own):
        return None
    return (*false.edits, *others)


def _spliced(
    file: SourceFile, pieces: Mapping[TestFunction, list[bytes]]
) -> tuple[bytes, tuple[tuple[int, int], ...]]:
    parts: list[bytes] = []
    begins: list[tuple[int, int]] = []
    line = 1
    at = 0

    def add(piece: bytes, own_line: int) -> None:
        nonlocal line
        begins.append((line, own_line))
        parts.append(piece)
        line += piece.count(b"\n")

    for function in file.functions:
        add(file.content[at : function.start], file.line_at(at))
        for piece in pieces[function]:
            add(piece, file.line_at(function.start))
        at = function.end
    add(file.content[at:], file.line_at(at))
    return b"".join(parts), tuple(begins)


def _renamed(file: SourceFile, function: TestFunction, name: str, edits: tuple[Edit, ...]) -> bytes:
    end = function.named_at + len(function.name.encode())
    new = Edit(start=function.named_at, end=end, text=name.encode())
    return edited(file.content, [*edits, new], function.start, function.end)
