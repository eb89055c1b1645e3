"""Has tools read sources in sandboxes, and tells who is at fault when one gives no answer.

The sources are hostile: they may crash a tool, or take its time or memory, so each tool's answer is
waited for by itself, and what a run did not come to is tried in a new one. What comes back is
decoded within bounds and believed only as far as its form is right: it earns a component, never a
check.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from ruff import find_ruff_bin

from tiltyard.core.execution import SandboxSpec
from tiltyard.core.values import Value
from tiltyard.core.verdict import Evidence
from tiltyard.sandbox.pool import Provider
from tiltyard.sandbox.zygotes import Interpreter, ZygoteCells, ZygoteProgram
from tiltyard.verify.crossing import framed
from tiltyard.verify.evidence import plain
from tiltyard.verify.room import Room
from tiltyard.verify.shipping import shared, shipped
from tiltyard.verify.split.candidate import Candidate, Gone
from tiltyard.verify.static.sources import Sources

TYPES = "types"
WALL_S = 15.0
"""For all tools on one submission; they take some 0.1 s on a source of ordinary size."""
LOST_MAX = 3
"""Runs that a source may end before the rest of the tools is given up."""
FINDINGS_MAX = 50
NUMBERS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a tool found."""

    numbers: Mapping[str, float]
    findings: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The tool gave no answer about these sources."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """This machine does not have the tool."""

    why: str


Result: TypeAlias = Report | Failed | Absent


class SourceReader(Room):
    """Kept interpreters with the tools imported. Use with `async with`."""

    def __init__(
        self, provider: Provider, *, interpreter: Interpreter, spec: SandboxSpec, cells_max: int
    ) -> None:
        """`cells_max` bounds the sandboxes for the linters; for types there is one."""
        self._tools = ZygoteCells(
            provider,
            interpreter=interpreter,
            program=_program("analyse.py", "python_source.py", "linters.py", "compilers.py"),
            spec=spec,
            cells_max=cells_max,
        )
        self._types = ZygoteCells(
            provider,
            interpreter=interpreter,
            program=_program("types_of.py"),
            spec=spec,
            cells_max=1,
        )
        super().__init__(self._tools, self._types)

    async def read(self, sources: Sources, tools: Sequence[str]) -> dict[str, Result]:
        """What each of these tools says. Raises `SandboxError` when the fault is ours."""
        if sources.too_large:
            return {tool: Failed(why=sources.too_large) for tool in tools}
        found: dict[str, Result] = {}
        linters = [tool for tool in tools if tool != TYPES]
        await self._read(self._tools, sources, linters, found)
        if TYPES in tools:
            if find_spec("mypy") is None:
                found[TYPES] = Absent(why="mypy is not installed; its package is named mypy")
            else:
                await self._read(self._types, sources, [TYPES], found)
        return found

    async def _read(
        self, cells: ZygoteCells, sources: Sources, tools: Sequence[str], found: dict[str, Result]
    ) -> None:
        waiting, lost = list(tools), 0
        files: list[Value] = [[path, text] for path, text in sources.files.items()]
        first = framed(("files", sources.suffix, files))
        while waiting and lost < LOST_MAX:
            async with cells.run(wall_s=WALL_S) as run:
                candidate = Candidate(run, deadline_s=WALL_S)
                candidate.ask(first, *(framed(("run", tool)) for tool in waiting))
                taken = await candidate.receive()
                while waiting:
                    reply = taken if isinstance(taken, Gone) else await candidate.receive()
                    tool = waiting.pop(0)
                    if isinstance(reply, Gone):
                        found[tool] = Failed(why=f"the tool {reply.evidence}")
                        lost += 1
                        break
                    found[tool] = _result(reply.kind, reply.rest)
        for tool in waiting:
            found[tool] = Failed(why="not tried: the source ended too many tools before")


def _program(main: str, *others: str) -> ZygoteProgram:
    files = shared("channel.py") | shipped(__name__, main, *others)
    programs = {"ruff": Path(find_ruff_bin())} if others else {}
    return ZygoteProgram(files=files, main=main, programs=programs)


def _result(kind: str, rest: tuple[Value, ...]) -> Result:
    match kind, rest:
        case "report", (dict() as numbers, list() as findings):
            if len(numbers) <= NUMBERS_MAX and all(
                type(name) is str and type(number) is float and 0 <= number < 1e12
                for name, number in numbers.items()
            ):
                read = tuple(_finding(each) for each in findings[:FINDINGS_MAX])
                listed = tuple(each for each in read if each is not None)
                clean = {plain(str(name)): _number(number) for name, number in numbers.items()}
                return Report(numbers=MappingProxyType(clean), findings=listed)
        case "absent", (str() as why,):
            return Absent(why=plain(why))
        case "failed", (str() as why,):
            return Failed(why=plain(why))
    return Failed(why="the tool's answer is none")


def _number(value: Value) -> float:
    return value if isinstance(value, float) else 0.0


def _finding(value: Value) -> Evidence | None:
    match value:
        case [str() as code, str() as message, str() as path, int() as line, value]:
            return Evidence(
                message=plain(message),
                code=plain(code),
                path=plain(path),
                line=max(0, min(line, 10**9)),
                value=value if isinstance(value, float) else None,
            )
    return None
