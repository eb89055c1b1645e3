"""Measures Tiltyard beside other systems: `python bench`, or `make bench`.

A benchmark is a name and an async function that runs one or more races and adds their rows to the
board. A new one is a file of its own and a line in BENCHES.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import crowds
import forks
import interpreters
import rollouts
import sandboxes
import verifications
from board import Board
from goals import compared
from peers import use_pidfds
from rows import merge_rows, read_rows
from tiltyard.core.errors import TiltyardError

BENCHES: list[tuple[str, Callable[[Board], Awaitable[None]]]] = [
    ("sandbox", sandboxes.one_by_one),
    ("sandbox-load", sandboxes.under_load),
    ("sustained", crowds.sustained),
    ("idle", crowds.idle),
    ("live", crowds.live),
    ("fork", forks.one_by_one),
    ("interpreters", interpreters.one_by_one),
    ("verification", verifications.one_by_one),
    ("verification-load", verifications.under_load),
    ("rollouts", rollouts.under_load),
]
RESULTS = Path(__file__).resolve().parent / "results.json"
SECONDS, QUICK_SECONDS = 4.0, 0.3
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, writes and shows; returns the exit code. What was measured is always written."""
    options = _options(arguments)
    interrupted = False
    try:
        read_rows(options.output)  # an unusable file is refused before the work, not after it
        board = Board(seconds=QUICK_SECONDS if options.quick else options.seconds)
        board.describe_machine()
        try:
            asyncio.run(_measure(board, options.only))
        except KeyboardInterrupt:
            interrupted = True
            board.say("\nStopped; what was measured until now is kept.")
        merge_rows(options.output, board.rows)
    except TiltyardError as error:
        print(f"bench: {error}")
        return EXIT_USAGE
    board.show_tables()
    for line in compared(board.rows):
        board.say(line)
    board.describe_machine()
    board.say(f"{len(board.rows)} rows are in {options.output}")
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_FAILED if board.failed else 0


async def _measure(board: Board, only: Sequence[str]) -> None:
    use_pidfds()
    for name, runner in BENCHES:
        if only and name not in only:
            continue
        board.say(f"{name}: {(runner.__doc__ or '').splitlines()[0]}")
        try:
            await runner(board)
        except* (TiltyardError, TimeoutError) as group:
            board.fail(name, str(_first(group)))


def _first(group: BaseExceptionGroup) -> BaseException:
    found: BaseException = group
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [name for name, _ in BENCHES]
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--seconds",
        type=_positive,
        default=SECONDS,
        help="how long each system is measured in each race (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="a rough look in under 30 seconds")
    parser.add_argument(
        "--only", action="append", default=[], choices=names, help="run this one; may be repeated"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="the file of rows (default: %(default)s)"
    )
    return parser.parse_args(arguments)


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise ValueError(text)
    return value


if __name__ == "__main__":
    raise SystemExit(main())
