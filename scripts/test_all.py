"""Runs every test, on two cores at once.

Here: those that need a sandbox. Beside them: those that need none, and then the quick ones of the
sandbox again as an ordinary user; what these print is shown when all are done, and below it one
line that adds up the closing lines of all three. Arguments are passed to each pytest; a `-m` among
them narrows each part and does not replace what the part is. The exit code is the first that is not
0; that a part has no test to run (5) counts only where no part has one.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Event

ROOT = Path(__file__).resolve().parents[1]
NOTHING_RAN = 5
PYTEST = (sys.executable, "-m", "pytest")
CLOSING = re.compile(r"^(?:=+ )?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s", re.MULTILINE)
COLOUR = re.compile(r"\x1b\[[\d;]*m")
TOLD = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
"""Not what was deselected: what one part leaves out is mostly run by another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One run of pytest."""

    command: tuple[str, ...]
    markers: str
    options: tuple[str, ...] = ()

    def words(self, arguments: Sequence[str]) -> list[str]:
        """The whole command line, with the user's own arguments."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("-m", dest="markers", default="")
        given, rest = parser.parse_known_args(arguments)
        both = f"({self.markers}) and ({given.markers})" if given.markers else self.markers
        return [*self.command, "-m", both, *self.options, *rest]


SANDBOX = Part(command=PYTEST, markers="sandbox")
# Two runs of pytest must not write one cache.
OTHERS = Part(command=PYTEST, markers="not sandbox", options=("-p", "no:cacheprovider"))
# How a verdict comes about does not depend on who makes the sandboxes; `make test-user` runs all.
AS_USER = Part(
    command=("scripts/test-as-user",),
    markers="sandbox and not slow",
    options=("--ignore", "tests/verify"),
)


def run(words: Sequence[str], stopped: Event, *, live: bool) -> tuple[int, str]:
    """The exit code of a command and what it said; `live` shows that meanwhile. Nothing is begun
    once `stopped` is set, which an interrupt does."""
    if stopped.is_set():
        return NOTHING_RAN, ""
    said = bytearray()
    columns = str(shutil.get_terminal_size().columns)
    with subprocess.Popen(
        words,
        cwd=ROOT,
        env={**os.environ, "COLUMNS": columns},
        stdout=subprocess.PIPE,
        stderr=None if live else subprocess.STDOUT,
    ) as process:

        def hear() -> None:
            while block := os.read(process.stdout.fileno(), 65_536):
                said.extend(block)
                if live:
                    sys.stdout.buffer.write(block)
                    sys.stdout.flush()

        try:
            hear()
        except BaseException:
            stopped.set()
            # Pytest was interrupted too, and still says what it had found; a second time ends it.
            try:
                hear()
            finally:
                process.kill()
            raise
    return process.returncode, said.decode(errors="replace")


def summed(said: Iterable[str], took_s: float) -> str:
    """One closing line for all; empty where no part came to its own."""
    counts: Counter[str] = Counter()
    for text in said:
        for counted in CLOSING.findall(COLOUR.sub("", text))[-1:]:
            for each in counted.split(", "):
                number, word = each.split()
                counts["error" if word == "errors" else word] += int(number)
    line = ", ".join(f"{counts[word]} {word}" for word in TOLD if counts[word])
    return f"===== {line} in {took_s:.0f}s =====" if line else ""


def main(arguments: list[str]) -> int:
    started, stopped = time.monotonic(), Event()
    # What goes through a pipe would have none.
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    with ThreadPoolExecutor(max_workers=1) as beside:
        others = [
            beside.submit(run, each.words(arguments), stopped, live=False)
            for each in (OTHERS, AS_USER)
        ]
        try:
            ended = [
                run(SANDBOX.words([*colour, *arguments]), stopped, live=True),
                *(each.result() for each in others),
            ]
        finally:
            beside.shutdown(cancel_futures=True)
            for each in others:
                if not each.cancelled():
                    sys.stdout.write(each.result()[1])
    if closing := summed((said for _, said in ended), time.monotonic() - started):
        print(closing)
    codes = [code for code, _ in ended]
    bad = [code for code in codes if code not in {0, NOTHING_RAN}]
    return bad[0] if bad else min(codes)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
