"""This process's terminal, lent to a program in a sandbox."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from tiltyard.cli.yard.running import STDIN, STDOUT
from tiltyard.cli.yard.wire import Size
from tiltyard.core.errors import UsageError

SIDE_MAX = 10_000


def size() -> Size:
    """The terminal's. Raises `UsageError` when there is none."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("shell needs a terminal.", fix="for a program without one, use exec.")
    columns, rows = os.get_terminal_size(STDOUT)
    # A terminal that was given no size says 0.
    return Size(rows=min(rows or 24, SIDE_MAX), columns=min(columns or 80, SIDE_MAX))


@contextmanager
def lent() -> Iterator["asyncio.Queue[Size]"]:
    """Hands every key on as it is, Ctrl-C too, for the length of a block; gives its new sizes."""
    loop = asyncio.get_running_loop()
    sizes: asyncio.Queue[Size] = asyncio.Queue(1)

    def resized() -> None:
        if sizes.full():
            sizes.get_nowait()  # the last one counts
        sizes.put_nowait(size())

    before = termios.tcgetattr(STDIN)
    loop.add_signal_handler(signal.SIGWINCH, resized)
    try:
        tty.setraw(STDIN, termios.TCSADRAIN)  # what was typed ahead is kept
        yield sizes
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)
        loop.remove_signal_handler(signal.SIGWINCH)
