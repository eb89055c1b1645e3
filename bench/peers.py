"""The systems that ours are compared with: a bare child process, and bubblewrap.

Each is used as a careful user of it would: output captured, read-only system directories, a new
namespace of every kind, dead with its parent.
"""

import asyncio
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from pathlib import Path

from race import PeerFailed

TIMEOUT_S = 60.0


async def run_program(
    argv: Sequence[str],
    *,
    expected_code: int = 0,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Runs a program to its end. Raises PeerFailed for any other exit code, or when it hangs.

    Its standard input is a pipe that ends at once, and not /dev/null: runsc gives the files that it
    is started with to nobody, and that one is the machine's own.
    """
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except TimeoutError:
        raise PeerFailed(f"{argv[0]} did not end within {timeout_s:.0f} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    if process.returncode != expected_code:
        last = (err or out).decode("utf-8", "replace").strip()[-300:]
        raise PeerFailed(f"{argv[0]} ended with {process.returncode}: {last}")


def use_pidfds() -> None:
    """Makes the running loop wait for children by pidfd, as Python 3.12 does by itself.

    Older ones start a thread for each child, and the peers would pay for it.
    """
    if sys.version_info < (3, 12):
        watcher = asyncio.PidfdChildWatcher()
        watcher.attach_loop(asyncio.get_running_loop())
        asyncio.set_child_watcher(watcher)


def bwrap_argv(*options: str) -> list[str]:
    """The start of a bubblewrap command. Raises PeerFailed when there is no bubblewrap."""
    program = shutil.which("bwrap")
    if program is None:
        raise PeerFailed("bwrap is not installed. Fix: scripts/setup-system --peers")
    argv = [program, "--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
    argv += ["--tmpfs", "/tmp", "--ro-bind", "/usr", "/usr"]
    for path in (Path("/bin"), Path("/sbin"), *sorted(Path("/").glob("lib*"))):
        if path.is_symlink():
            argv += ["--symlink", os.fspath(path.readlink()), os.fspath(path)]
        elif path.is_dir():
            argv += ["--ro-bind", os.fspath(path), os.fspath(path)]
    return [*argv, *options]


def bwrap_python() -> list[str]:
    """The options that show this Python environment in bubblewrap."""
    return [word for tree in python_trees() for word in ("--ro-bind", tree, tree)]


def python_trees() -> list[str]:
    """The directories of this Python environment that are not below `/usr`."""
    trees = {Path(sys.prefix), Path(sys.base_prefix).resolve()}
    return sorted(os.fspath(tree) for tree in trees if not tree.is_relative_to("/usr"))
