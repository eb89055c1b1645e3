"""Every case of the suite, in the order in which it is run, and how one is named."""

from collections.abc import Iterable

from tiltyard.core.errors import UsageError
from tiltyard.sandbox.conformance.case import Case
from tiltyard.sandbox.conformance.families import (
    calls,
    disk,
    egress,
    endings,
    escapes,
    files,
    forks,
    frozen,
    identity,
    kernel_memory,
    memory,
    neighbours,
    network,
    output,
    processes,
    terminals,
    trees,
    writable,
    zygotes,
)

CASES: tuple[Case, ...] = (
    *identity.CASES,
    *escapes.CASES,
    *writable.CASES,
    *calls.CASES,
    *network.CASES,
    *egress.CASES,
    *files.CASES,
    *frozen.CASES,
    *trees.CASES,
    *forks.CASES,
    *disk.CASES,
    *output.CASES,
    *processes.CASES,
    *endings.CASES,
    *terminals.CASES,
    *memory.CASES,
    *kernel_memory.CASES,
    *neighbours.CASES,
    *zygotes.CASES,
)


def chosen(names: Iterable[str]) -> tuple[Case, ...]:
    """The cases of these names or families; all of them when none is named.

    Raises `UsageError` for a name that is neither.
    """
    wanted = list(names)
    for name in wanted:
        if not any(name in {case.name, case.family} for case in CASES):
            families = sorted({case.family for case in CASES})
            raise UsageError(
                f"no case or family is named {name!r}.",
                fix=f"a family is one of {', '.join(families)}; --list names the cases.",
            )
    return tuple(case for case in CASES if not wanted or {case.name, case.family} & set(wanted))
