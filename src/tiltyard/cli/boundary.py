"""Where errors become messages and exit codes. No command shows a user a traceback.

Exit codes, the same for every command:

    0    done
    1    done, but something to look at: a fault of ours in some rollouts, or a doctor's finding
    2    wrong usage: an option, a setting, a task or a file
    3    this machine, a disk or a model server could not do it; for a run: not one rollout
    70   a defect of ours; the message says where the details are
    130  stopped by Ctrl-C (143: by SIGTERM); what had finished is kept
"""

import asyncio
import errno
import io
import os
import select
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text
from typer.exceptions import TyperException

from tiltyard.cli.plain import visible
from tiltyard.core.errors import TaskError, TiltyardError, UsageError

EXIT_OK, EXIT_LOOK, EXIT_USAGE, EXIT_CANNOT, EXIT_DEFECT = 0, 1, 2, 3, 70
EXIT_INTERRUPTED, EXIT_TERMINATED = 130, 143

_STOPS = (signal.SIGINT, signal.SIGTERM)
_STOPPING = b"\nstopping, and closing what is open; Ctrl-C again does not wait for that\n"

# Without markup: what is printed may hold a path or a text in which brackets mean themselves.
errors = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


class Terminated(BaseException):
    """SIGTERM arrived: everything is closed as for Ctrl-C."""


def run_async(work: Coroutine[Any, Any, int]) -> int:
    """Runs a command's coroutine to its exit code; Ctrl-C and SIGTERM cancel it, and it closes.

    That is said at once, because closing takes a moment. A second Ctrl-C does not wait for it.
    """

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - inside asyncio.run there always is one
        loop = asyncio.get_running_loop()
        received: list[int] = []

        def stop(number: int, _frame: FrameType | None) -> None:
            received.append(number)
            if len(received) > 1:
                raise KeyboardInterrupt
            # Unbuffered, because a handler may interrupt whoever is writing just now.
            os.write(2, _STOPPING)
            loop.call_soon_threadsafe(task.cancel)

        before = {number: signal.signal(number, stop) for number in _STOPS}
        try:
            return await work
        except asyncio.CancelledError:
            if task.cancelling() == 0:
                raise RuntimeError("something was cancelled that nobody stopped") from None
            errors.print("stopped", style="yellow")
            if received[:1] == [signal.SIGTERM]:
                raise Terminated from None
            raise
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    return asyncio.run(main())


def guarded(command: Callable[[], object]) -> NoReturn:
    """Runs a command line and exits with its code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # What a terminal's encoding lacks is escaped, never an error: a path or a bar of a curve.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        result = command()
        # Here, where a full disk can still be told, and not at Python's exit.
        sys.stdout.flush()
        code = result if isinstance(result, int) else EXIT_OK
    except BaseException as error:  # noqa: BLE001 - the outermost boundary
        code = explain(error)
    sys.exit(code)


def explain(error: BaseException) -> int:
    """Says what happened and what to do, and returns the exit code."""
    match error:
        case typer.Exit():
            return error.exit_code
        case typer.Abort() | KeyboardInterrupt() | asyncio.CancelledError():
            return EXIT_INTERRUPTED
        case Terminated():
            return EXIT_TERMINATED
        case TyperException():
            # Without words it is a command line without a command: the help has been printed.
            if words := _words(error):
                _say("error:", "red", words)
                _say("fix:", "bold", "`--help` after the command tells its options.")
            return EXIT_USAGE
        case BaseExceptionGroup():
            # Tasks that failed together: the first one tells what happened.
            return explain(_first(error))
        case TiltyardError():
            _say("error:", "red", error.message)
            if error.fix:
                _say("fix:", "bold", error.fix)
            return EXIT_USAGE if isinstance(error, (UsageError, TaskError)) else EXIT_CANNOT
        case SystemExit(code=int(code)):
            # 1 is Rich's: whoever read our output has seen enough.
            return EXIT_OK if code == 1 else code
        case BrokenPipeError() if _output_is_refused():
            return EXIT_OK  # whoever read our output has seen enough
        case OSError(errno=errno.ENOSPC | errno.EDQUOT | errno.EFBIG, filename=None):
            # Of files of ours a `StoreError` tells; what has no name is the output.
            _output_is_refused()
            _say("error:", "red", f"the output cannot be written: {error.strerror}.")
            _say("fix:", "bold", "free space where it goes, or send it elsewhere.")
            return EXIT_CANNOT
        case _:
            return _defect(error)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The most telling of several: an error of ours before anything else, a cancellation last."""
    known, others = group.split(TiltyardError)
    inner = (known or others or group).exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


def _defect(error: BaseException) -> int:
    text = "".join(traceback.format_exception(error))
    _say("defect:", "red", f"{type(error).__name__}: {error}")
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="tiltyard-defect-", suffix=".txt", delete=False, errors="backslashreplace"
        ) as file:
            file.write(text)
    except OSError:
        _say("fix:", "bold", f"please report it with these lines:\n{text[-2000:]}")
    else:
        _say("fix:", "bold", f"please report it with {file.name}")
    return EXIT_DEFECT


def _say(label: str, style: str, text: str) -> None:
    """Prints text as it is: it may come from a server or a program and hold Rich's markup."""
    errors.print(Text.assemble((label, style), " ", visible(text)))


def _words(error: TyperException) -> str:
    """What is wrong, with the option as it is typed; empty when only the help was asked for."""
    words, _, _ = error.format_message().partition(", unable to parse")
    return words.replace(": Input should be", ": must be")


def _output_is_refused() -> bool:
    """Whether standard output takes no more; if so it is given up, or Python's exit complains."""
    waiting = select.poll()
    waiting.register(sys.stdout.fileno(), select.POLLOUT)
    gone = any(events & (select.POLLERR | select.POLLHUP) for _, events in waiting.poll(0))
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        gone = True
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone
