"""What the `tiltyard sandbox` commands do and print; their options are in `sandbox_options`."""

import asyncio
import json
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.live import Live

from tiltyard.cli.boundary import EXIT_OK, errors, explain
from tiltyard.cli.yard import client, copying, ending, running, tables, terminal
from tiltyard.cli.yard.wire import Create, Ended, Exec, Kind, Row, State
from tiltyard.core.errors import TiltyardError, UsageError
from tiltyard.core.execution import Limit
from tiltyard.core.files import Links

CAPTURE_BYTES_MAX = 16 * 1024 * 1024
"""What `exec --json` keeps of each stream."""
NAMED_MAX = 10


def print_json(document: object) -> None:
    """The output of a command with --json."""
    print(json.dumps(document, indent=2))  # noqa: T201 - the command's output


def print_lines(*lines: str) -> None:
    """The output of a command."""
    for line in lines:
        print(line)  # noqa: T201 - the command's output


async def create(
    directory: Path, request: Create, *, accepted: Collection[Limit], as_json: bool
) -> int:
    """Makes a sandbox and prints its id. What is not held of it is told, but for `accepted`."""
    row = await client.create(directory, request)
    tell_unheld([limit for limit in row.unenforced if limit not in accepted])
    print_json(_plain(row)) if as_json else print_lines(row.id)
    return EXIT_OK


def tell_unheld(limits: Sequence[Limit]) -> None:
    """One line on standard error about limits that a sandbox can exceed, if there are any."""
    if limits:
        flags = " ".join(f"--allow-unenforced {limit}" for limit in limits)
        errors.print(
            f"not held for a whole sandbox here: {', '.join(limits)}; tiltyard doctor says why, "
            f"and {flags} accepts it without these words",
            style="yellow",
        )


async def execute(directory: Path, request: Exec, *, as_json: bool) -> int:
    """Runs a program and returns its exit code; 125 for what is not the program's doing."""
    captured = {Kind.STDOUT: bytearray(), Kind.STDERR: bytearray()}

    def take(kind: Kind, block: bytes) -> None:
        room = CAPTURE_BYTES_MAX - len(captured[kind])
        captured[kind].extend(block[:room])

    try:
        ended = await running.run(directory, request, take=take if as_json else None)
    except BrokenPipeError:
        raise typer.Exit(running.EXIT_BY_SIGNAL + 13) from None  # as if by SIGPIPE
    except TiltyardError as error:
        explain(error)
        return running.EXIT_TILTYARD
    if as_json:
        print_json(_ended(ended, bytes(captured[Kind.STDOUT]), bytes(captured[Kind.STDERR])))
    else:
        running.tell(ended)
    return running.exit_code(ended)


async def shell(directory: Path, request: Exec) -> int:
    """Runs a program on this terminal and returns its exit code."""
    try:
        with terminal.lent() as sizes:
            ended = await running.run(directory, request, sizes=sizes)
    except TiltyardError as error:
        explain(error)
        return running.EXIT_TILTYARD
    running.tell(ended)
    return running.exit_code(ended)


async def copy(directory: Path, source: str, target: str, *, links: Links, as_json: bool) -> int:
    """Copies a file or a tree into a sandbox or out of one."""
    copied = await copying.copy(directory, source, target, links=links)
    if as_json:
        print_json(copied.model_dump(mode="json", exclude={"say"}) if copied else {"files": 1})
    elif copied and copied.skipped:
        named = ", ".join(map(repr, copied.skipped_paths[:NAMED_MAX]))
        errors.print(
            f"left out {copied.skipped} links and special files: {named}",
            style="yellow",
            markup=False,
        )
    return EXIT_OK


async def ls(directory: Path, *, as_json: bool) -> int:
    """Lists the sandboxes."""
    rows = await client.rows(directory)
    if as_json:
        print_json([_plain(row) for row in rows])
    else:
        Console(highlight=False).print(tables.listing(rows))
    return EXIT_OK


async def top(directory: Path, *, interval_s: float, once: bool, as_json: bool) -> int:
    """Shows what the sandboxes use, anew every `interval_s`, until it is stopped."""
    loop = asyncio.get_running_loop()

    async def sample(before: Sequence[Row], since_s: float) -> tuple[list[Row], dict[str, float]]:
        rows = await client.rows(directory)
        return rows, tables.shares_of(before, rows, loop.time() - since_s)

    rows, since_s = await client.rows(directory), loop.time()
    await asyncio.sleep(interval_s)
    if once or as_json or not sys.stdout.isatty():
        rows, shares = await sample(rows, since_s)
        live = [row for row in rows if row.state is State.LIVE]
        if as_json:
            print_json([{**_plain(row), "cpu_cores": shares.get(row.id)} for row in live])
        else:
            Console(highlight=False).print(tables.readings(rows, shares))
        return EXIT_OK
    with Live(console=Console(highlight=False), auto_refresh=False) as live_table:
        while True:
            rows, shares = await sample(rows, since_s)
            since_s = loop.time()
            live_table.update(tables.readings(rows, shares), refresh=True)
            await asyncio.sleep(interval_s)


async def rm(directory: Path, ids: Sequence[str], *, every: bool, as_json: bool) -> int:
    """Ends sandboxes and prints their ids."""
    if bool(ids) == every:
        raise UsageError("name sandboxes, or say --all.", fix="`tiltyard sandbox ls` lists them.")
    rows = await client.remove(directory, None if every else ids)
    print_json([row.id for row in rows]) if as_json else print_lines(*(row.id for row in rows))
    return EXIT_OK


async def stop(directory: Path) -> int:
    """Ends the daemon with every sandbox."""
    print_lines("ended" if await ending.stop(directory) else "there was no yard daemon")
    return EXIT_OK


def _plain(row: Row) -> dict[str, object]:
    return row.model_dump(mode="json")


def _ended(ended: Ended, stdout: bytes, stderr: bytes) -> dict[str, object]:
    streams = {"stdout": stdout, "stderr": stderr}
    return {
        **ended.model_dump(mode="json", exclude={"say"}),
        **{name: raw.decode("utf-8", "replace") for name, raw in streams.items()},
    }
