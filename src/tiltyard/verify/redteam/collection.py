"""The collection: every cheat for a task, in the order of their classes. Pure."""

from collections.abc import Iterator, Sequence

from tiltyard.core.checks import Checks
from tiltyard.core.errors import UsageError
from tiltyard.core.task import Task
from tiltyard.verify.redteam.blocks import Block, Texts, blocks_of
from tiltyard.verify.redteam.cheat import CLASSES, Cheat, aims_of
from tiltyard.verify.redteam.shipped import shipped
from tiltyard.verify.redteam.statics import statics
from tiltyard.verify.redteam.surface import Surface, surface_of

_FUNCTIONS = tuple(f"{letter}.txt" for letter in "abcdefg")
_PROGRAMS = {".py": "programs_python.txt", ".c": "programs_c.txt"}
_NO_PROGRAM = {
    ".py": "import sys\nsys.stdin.read()\nprint()\n",
    ".c": "int main(void) { return 0; }\n",
}
_STUBS = ("None", "first")


def wrong_answers(task: Task) -> tuple[Texts, ...]:
    """Answers that ought to be wrong, by path, the likeliest first.

    A task that accepts all of them is too weak to tell cheats by.
    """
    surface = surface_of(task)
    if surface.program:
        suffix = _suffix(surface)
        made = [{surface.first: _NO_PROGRAM.get(suffix, "")}]
    else:
        made = [{each.path: each.stubs(result) for each in surface.answers} for result in _STUBS]
    started = {each.path: each.starter for each in surface.answers if each.starter}
    if started:
        made.append({**made[0], **started})
    return (*made, {each.path: "" for each in surface.answers})


def cheats_for(task: Task, wrong: Texts) -> tuple[Cheat, ...]:
    """The cheats that can be tried on a task, made from an answer to it that is wrong.

    Those that only try to be measured better are left out where the task measures nothing.
    """
    surface = surface_of(task)
    asked = task.checks
    static = Checks(static=asked.static, types=asked.types)
    dynamic = Checks(inputs=asked.inputs, cost=asked.cost, growth=asked.growth, leaks=asked.leaks)
    nothing = Checks()
    made = [*_from_blocks(surface, wrong, dynamic)]
    made += shipped(surface, wrong)
    made += statics(surface, wrong, static)
    aims = aims_of(task)
    kept = [
        each for each in made if each.aims & aims and not (each.right and each.checks == nothing)
    ]
    return tuple(sorted(kept, key=lambda cheat: cheat.letter))


def chosen(only: Sequence[str], cheats: Sequence[Cheat]) -> tuple[Cheat, ...]:
    """The cheats whose id or class letter is named; all when none is.

    What this task has none of is no error, because another one may.
    """
    return tuple(
        each for each in cheats if not only or each.id in only or each.letter in _letters(only)
    )


def refuse_unknown(only: Sequence[str], known: Sequence[str]) -> None:
    """Raises UsageError for a name that is neither a class nor one of the ids in `known`."""
    for name in only:
        if name.lower() not in CLASSES and name not in known:
            raise UsageError(
                f"there is no cheat and no class of cheats named {name[:60]!r}.",
                fix="Name a class from a to h, or an id; --list shows them.",
            )


def _letters(only: Sequence[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in only if len(name) == 1)


def _from_blocks(surface: Surface, wrong: Texts, dynamic: Checks) -> Iterator[Cheat]:
    for block in _blocks(surface):
        checks = dynamic if block.right else Checks()
        yield block.cheat(surface, wrong, checks)


def _blocks(surface: Surface) -> Iterator[Block]:
    if not surface.program:
        for name in _FUNCTIONS:
            yield from blocks_of(name)
        return
    yield from blocks_of("c.txt")
    if _suffix(surface) in _PROGRAMS:
        yield from blocks_of(_PROGRAMS[_suffix(surface)])


def _suffix(surface: Surface) -> str:
    return surface.first[surface.first.rfind(".") :]
