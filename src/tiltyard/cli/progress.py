"""How far a long command is, on standard error: a bar on a terminal, elsewhere a line now and then.

A log that stays empty for a minute looks like a hang; a bar in a log is a mess. Whoever asked for
JSON reads no progress: with `quiet` there is none.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

LINE_EVERY_S = 5.0

Advance: TypeAlias = Callable[[str], None]
"""Called for each thing that is done, with what came of it in a word."""
Tell: TypeAlias = Callable[[str], None]
"""Called with what is done from now on."""


@contextmanager
def progress(
    what: str,
    total: int,
    *,
    console: Console,
    quiet: bool = False,
    line_every_s: float = LINE_EVERY_S,
) -> Iterator[Advance]:
    """Shows how many of `total` things, named `what`, are done, until the block ends."""
    counts: Counter[str] = Counter()
    if quiet:
        yield lambda outcome: counts.update((outcome,))
        return
    if console.is_terminal:
        with _bar(what, total, console) as show:

            def advance(outcome: str) -> None:
                counts[outcome] += 1
                show(_told(counts))

            yield advance
        return

    def line(after_s: float) -> str:
        # A copy, because the other thread counts meanwhile.
        now = counts.copy()
        told = _told(now)
        words = f"{now.total()} of {total} {what} after {after_s:.0f} s"
        return f"{words}: {told}" if told else words

    with _lines(line, console, line_every_s):
        yield lambda outcome: counts.update((outcome,))


@contextmanager
def phases(
    first: str, *, console: Console, quiet: bool = False, line_every_s: float = LINE_EVERY_S
) -> Iterator[Tell]:
    """Shows what one long thing is at, `first` to begin with, until the block ends."""
    now = [first]
    if quiet:
        yield lambda _: None
        return
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as shown:
            bar = shown.add_task(first, total=None)
            yield lambda phase: shown.update(bar, description=phase)
        return
    with _lines(lambda after_s: f"{now[-1]} after {after_s:.0f} s", console, line_every_s):
        yield now.append


@contextmanager
def _lines(line: Callable[[float], str], console: Console, every_s: float) -> Iterator[None]:
    """Prints what `line` makes of the seconds until then, now and then."""
    started = time.monotonic()
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(every_s):
            console.print(line(time.monotonic() - started))

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _bar(what: str, total: int, console: Console) -> Iterator[Callable[[str], None]]:
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[outcomes]}"),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        bar = shown.add_task(what, total=total, outcomes="")
        yield lambda told: shown.update(bar, advance=1, outcomes=told)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
