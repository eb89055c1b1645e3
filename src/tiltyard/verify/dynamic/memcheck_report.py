"""Reads what valgrind's memcheck wrote about a program: bounded, typed, and refused when odd. Pure.

The report comes out of the submission's sandbox, where the program can write to the same pipe, name
its files and functions as it likes, and be gone before memcheck speaks. So each figure must be
there exactly once for each program in each process, the figures must add up, and nothing else may
stand between: who adds a report of his own has two, and who hides the real one has none.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

LINES_MAX = 50_000
PROCESSES_MAX = 1_000
LOSSES_MAX = 50
"""Places that are kept for each process; the largest are the last."""
_LINE = re.compile(rb"(==|--)([0-9]{1,10})(?:==|--) ?(.*)")
_NUMBER = rb"([0-9][0-9,]{0,24})"
_AMOUNT = _NUMBER + rb" bytes in " + _NUMBER + rb" blocks"
_BEGINS = b"Memcheck, a memory error detector"
_FIGURES = {
    "heap": re.compile(rb"HEAP SUMMARY:"),
    "left": re.compile(rb" +in use at exit: " + _AMOUNT),
    "usage": re.compile(
        rb" +total heap usage: " + _NUMBER + rb" allocs, " + _NUMBER + rb" frees, .*"
    ),
    "all_freed": re.compile(rb"All heap blocks were freed -- no leaks are possible"),
    "leaks": re.compile(rb"LEAK SUMMARY:"),
    "definite": re.compile(rb" +definitely lost: " + _AMOUNT),
    "indirect": re.compile(rb" +indirectly lost: " + _AMOUNT),
    "possible": re.compile(rb" +possibly lost: " + _AMOUNT),
    "reachable": re.compile(rb" +still reachable: " + _AMOUNT),
    "suppressed": re.compile(rb" +suppressed: " + _AMOUNT),
    "open": re.compile(rb"FILE DESCRIPTORS: " + _NUMBER + rb" open \(" + _NUMBER + rb" std\) .*"),
}
_KINDS = ("definite", "indirect", "possible", "reachable", "suppressed")
_LOSS = re.compile(
    _NUMBER + rb" (?:\(.{1,80}\) )?bytes in " + _NUMBER + rb" blocks are definitely lost in .*"
)
_FRAME = re.compile(rb"   (?:at|by) 0x[0-9A-F]+: (.{1,200}) \(([^():]{1,200}):([0-9]{1,9})\)")
_INHERITED = re.compile(rb" +<inherited from parent>")


class OddReportError(ValueError):
    """It is not what memcheck writes when a program has ended. The message goes on from "it"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """A place in a source, as debug information names it."""

    function: str
    file: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Blocks that were lost in one place, with those that only they led to."""

    bytes: int
    blocks: int
    """Without those that only they led to."""
    frames: tuple[Frame, ...]
    """Innermost first; none without debug information."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessReport:
    """One program in one process, when it had ended."""

    pid: int
    """In the sandbox."""
    allocated_blocks: int
    """In all, freed or not."""
    lost_bytes: int
    """Definitely and indirectly: nothing leads to them any more."""
    lost_blocks: int
    reachable_bytes: int
    descriptors: int
    """Open at the end, without standard streams and those that it was started with."""
    losses: tuple[Loss, ...]


@dataclass(slots=True, kw_only=True)
class _Draft:
    pid: int
    figures: dict[str, tuple[int, ...]] = field(default_factory=dict)
    inherited: int = 0
    losses: list[tuple[int, int, list[Frame]]] = field(default_factory=list)
    in_loss: bool = False


def read_report(text: bytes) -> tuple[ProcessReport, ...]:
    """All programs that reported. Raises `OddReportError`.

    A process that was forked and never reported is not missed: only what was started as a program
    says so at its beginning.
    """
    drafts: list[_Draft] = []
    current: dict[int, _Draft] = {}
    for pid, line in _lines(text):
        if line == _BEGINS or pid not in current:
            current[pid] = _Draft(pid=pid)
            drafts.append(current[pid])
            if len(drafts) > PROCESSES_MAX:
                raise OddReportError(f"speaks of more than {PROCESSES_MAX} processes")
        _take(current[pid], line)
    if not drafts:
        raise OddReportError("is empty")
    return tuple(map(_finished, drafts))


def _lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    lines = text.split(b"\n")
    if lines.pop():
        raise OddReportError("ends in the middle of a line")
    if len(lines) > LINES_MAX:
        raise OddReportError(f"has more than {LINES_MAX} lines")
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise OddReportError(f"has a line that is not memcheck's: {line[:100]!r}")
        if match[1] == b"==":  # others are warnings about the program's system calls
            yield int(match[2]), match[3]


def _take(draft: _Draft, line: bytes) -> None:
    for name, pattern in _FIGURES.items():
        if found := pattern.fullmatch(line):
            if name in draft.figures:
                raise OddReportError(f"says twice of process {draft.pid}: {line[:100]!r}")
            draft.figures[name] = tuple(_number(each) for each in found.groups())
            draft.in_loss = False
            return
    if found := _LOSS.fullmatch(line):
        draft.losses.append((_number(found[1]), _number(found[2]), []))
        del draft.losses[:-LOSSES_MAX]
        draft.in_loss = True
    elif found := _FRAME.fullmatch(line):
        if draft.in_loss:
            frame = Frame(function=_text(found[1]), file=_text(found[2]), line=int(found[3]))
            draft.losses[-1][2].append(frame)
    elif _INHERITED.fullmatch(line):
        draft.inherited += 1
    elif not line:
        draft.in_loss = False


def _finished(draft: _Draft) -> ProcessReport:
    figures = draft.figures
    whole = {"heap", "left", "usage", "open"}
    whole |= {"all_freed"} if "all_freed" in figures else {"leaks", *_KINDS}
    if set(figures) != whole:
        if not figures:
            raise OddReportError(f"begins for process {draft.pid} and never ends")
        raise OddReportError(f"is not whole for process {draft.pid}")
    kinds = {name: figures.get(name, (0, 0)) for name in _KINDS}
    allocated, freed = figures["usage"]
    if figures["left"] != _sum(kinds, *_KINDS) or allocated - freed != figures["left"][1]:
        raise OddReportError(f"does not add up for process {draft.pid}")
    lost_bytes, lost_blocks = _sum(kinds, "definite", "indirect")
    opened, standard = figures["open"]
    return ProcessReport(
        pid=draft.pid,
        allocated_blocks=allocated,
        lost_bytes=lost_bytes,
        lost_blocks=lost_blocks,
        reachable_bytes=kinds["reachable"][0],
        descriptors=max(opened - standard - draft.inherited, 0),
        losses=tuple(
            Loss(bytes=size, blocks=blocks, frames=tuple(frames))
            for size, blocks, frames in sorted(draft.losses, key=lambda loss: -loss[0])
        ),
    )


def _sum(kinds: Mapping[str, tuple[int, ...]], *names: str) -> tuple[int, int]:
    return sum(kinds[name][0] for name in names), sum(kinds[name][1] for name in names)


def _number(digits: bytes) -> int:
    return int(digits.replace(b",", b""))


def _text(given: bytes) -> str:
    return given.decode("utf-8", "backslashreplace")
