"""One run's tests: which canaries are mixed in, under which names, and how ids lead back. Pure.

Names are of one form for all, drawn anew for every run, and keep the order that the tests had by
name. Which of them must fail is known only here.
"""

import bisect
import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tiltyard.verify.overlay.canaries import Canary, Kind
from tiltyard.verify.overlay.source import Edit, SourceFile, TestFunction, edited

SHARE = 0.15
"""Canaries of all tests, where there are many."""
CANARIES_MIN = 16
"""Fewer only where no more can be made: of three, a cheat that guesses gets through too often."""
_WEIGHT = {Kind.LITERAL: 2, Kind.TRIVIAL: 2, Kind.NEGATED: 1, Kind.EXCEPTION: 1, Kind.WRITTEN: 2}
"""How often a kind is drawn: one that says by its looks that it is false is worth less."""
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
class Plan:
    """What a run is given, and what its ids mean."""

    files: Mapping[str, bytes]
    """Test files that are other than the task's, by their path in the tree."""
    canaries: tuple[Tried | Canary, ...]
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


def draw(tried: list[Tried], tests: int, rng: random.Random) -> list[Tried]:
    """Canaries for one run of so many tests: every test and every kind before one comes twice."""
    wanted = max(CANARIES_MIN, math.ceil(tests * SHARE))
    left = rng.sample(tried, len(tried))
    chosen: list[Tried] = []
    pairs = Counter[tuple[TestFunction, Kind]]()
    functions = Counter[TestFunction]()
    kinds = Counter[Kind]()
    room = wanted * 2

    def rank(each: Tried) -> tuple[float, ...]:
        one = each.canary
        return (
            pairs[one.function, one.kind],
            functions[one.function],
            kinds[one.kind] / _WEIGHT[one.kind],
        )

    while left and len(chosen) < wanted:
        best = min(left, key=rank)
        left.remove(best)
        # One copy of a test with a thousand parameters would be more than all others.
        if chosen and best.tests > room:
            continue
        room -= best.tests
        chosen.append(best)
        pairs[best.canary.function, best.canary.kind] += 1
        functions[best.canary.function] += 1
        kinds[best.canary.kind] += 1
    return chosen


def plan_of(
    files: Mapping[str, SourceFile],
    canaries: Iterable[Tried | Canary],
    renamed: frozenset[str],
    rng: random.Random,
) -> Plan:
    """Splices canaries beside their originals and gives every test in `renamed` a new name."""
    canaries = tuple(canaries)
    order = sorted({each.name for file in files.values() for each in file.functions})
    places = {name: (index + 1) * _PLACES for index, name in enumerate(order)}
    names = {name: _name(places[name] + rng.randrange(_PLACES), rng) for name in renamed}
    by_name: dict[str, Canary] = {}
    copies: dict[TestFunction, list[tuple[str, Canary]]] = {}
    for each in canaries:
        canary = each.canary if isinstance(each, Tried) else each
        name = _name(places[canary.function.name] + rng.randrange(_PLACES), rng)
        by_name[name] = canary
        copies.setdefault(canary.function, []).append((name, canary))
    texts: dict[str, bytes] = {}
    lines: dict[str, tuple[tuple[int, int], ...]] = {}
    by_file: dict[str, list[tuple[TestFunction, list[tuple[str, Canary]]]]] = {}
    for path, file in files.items():
        if file.functions:
            by_file[path] = [(each, copies.get(each, [])) for each in file.functions]
    for path, functions_of_file in by_file.items():
        texts[path], lines[path] = _spliced(files[path], functions_of_file, names, rng)
    return Plan(files=texts, canaries=canaries, names=names, by_name=by_name, lines=lines)


def _name(place: int, rng: random.Random) -> str:
    return f"test_{place:09d}_{rng.getrandbits(32):08x}"


def _spliced(
    file: SourceFile,
    functions: list[tuple[TestFunction, list[tuple[str, Canary]]]],
    names: Mapping[str, str],
    rng: random.Random,
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

    for function, copies in functions:
        add(file.content[at : function.start], file.line_at(at))
        new = names.get(function.name, function.name)
        pieces = [_renamed(file, function, new, ())]
        pieces += [_renamed(file, function, name, canary.edits) for name, canary in copies]
        # Where the original is among them says nothing.
        for piece in rng.sample(pieces, len(pieces)):
            add(piece, file.line_at(function.start))
        at = function.end
    add(file.content[at:], file.line_at(at))
    return b"".join(parts), tuple(begins)


def _renamed(file: SourceFile, function: TestFunction, name: str, edits: tuple[Edit, ...]) -> bytes:
    end = function.named_at + len(function.name.encode())
    new = Edit(start=function.named_at, end=end, text=name.encode())
    return edited(file.content, [*edits, new], function.start, function.end)
