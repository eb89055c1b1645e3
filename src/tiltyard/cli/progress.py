"""How far a long command is, on standard error: a bar on a terminal, elsewhere a line now and then.

A log that stays empty for a minute looks like a hang; a bar in a log is a mess.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

LINE_EVERY_S = 5.0

Advance: TypeAlias = Callable[[str], None]
"""Called for each thing that is done, with what came of it in a word."""


@contextmanager
def progress(
    what: str, total: int, *, console: Console, line_every_s: float = LINE_EVERY_S
) -> Iterator[Advance]:
    """Shows how many of `total` things, named `what`, are done, until the block ends."""
    counts: Counter[str] = Counter()
    if console.is_terminal:
        with _bar(what, total, console) as show:

            def advance(outcome: str) -> None:
                counts[outcome] += 1
                show(_told(counts))

            yield advance
        return
    started = time.monotonic()
    ended = threading.Event()

    def tell() -> None:
        while not ended.wait(line_every_s):
            # A copy, because the other thread counts meanwhile.
            now = counts.copy()
            after_s = time.monotonic() - started
            told = _told(now)
            line = f"{now.total()} of {total} {what} after {after_s:.0f} s"
            console.print(f"{line}: {told}" if told else line)

    thread = threading.Thread(target=tell, name="progress", daemon=True)
    thread.start()
    try:
        yield lambda outcome: counts.update((outcome,))
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
