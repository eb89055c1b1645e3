"""Runs every test, on two cores at once.

Here: those that need a sandbox. Beside them: those that need none, and then the quick ones of the
sandbox again as an ordinary user; what these print is shown when all are done. Arguments are passed
to each pytest. The exit code is the first that is not 0; that a part has no test to run (5) counts
only where no part has one.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[1]
NOTHING_RAN = 5
PYTEST = (sys.executable, "-m", "pytest")
SANDBOX = (*PYTEST, "-m", "sandbox")
# Two runs of pytest must not write one cache.
OTHERS = (*PYTEST, "-m", "not sandbox", "-p", "no:cacheprovider")
# How a verdict comes about does not depend on who makes the sandboxes; `make test-user` runs all.
AS_USER = ("scripts/test-as-user", "-m", "sandbox and not slow", "--ignore", "tests/verify")


def run(command: tuple[str, ...], arguments: list[str], output: IO[bytes] | None = None) -> int:
    return subprocess.run(
        [*command, *arguments], cwd=ROOT, stdout=output, stderr=output, check=False
    ).returncode


def main(arguments: list[str]) -> int:
    with tempfile.TemporaryFile() as said, ThreadPoolExecutor(max_workers=1) as beside:
        others = [beside.submit(run, each, arguments, said) for each in (OTHERS, AS_USER)]
        try:
            codes = [run(SANDBOX, arguments), *(each.result() for each in others)]
        finally:
            beside.shutdown(cancel_futures=True)
            said.seek(0)
            sys.stdout.write(said.read().decode(errors="replace"))
    bad = [code for code in codes if code not in {0, NOTHING_RAN}]
    return bad[0] if bad else min(codes)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
