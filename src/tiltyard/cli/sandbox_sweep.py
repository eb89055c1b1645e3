"""`tiltyard sandbox sweep`; apart from the others, because only this one needs the adapters."""

import asyncio
from pathlib import Path

from tiltyard.cli.boundary import EXIT_OK
from tiltyard.cli.sandbox import print_json, print_lines
from tiltyard.cli.yard import client
from tiltyard.cli.yard.wire import State
from tiltyard.wiring import sweep_leftovers


async def sweep(directory: Path, *, as_json: bool) -> int:
    """Removes what no living process claims: sandboxes that died, were lost, and their cgroups."""
    gone = [row.id for row in await client.rows(directory) if row.state is not State.LIVE]
    if gone:
        await client.remove(directory, gone)
    owners = await asyncio.to_thread(sweep_leftovers)
    if as_json:
        print_json({"sandboxes": gone, "owners": owners})
    else:
        print_lines(f"forgot {len(gone)} sandboxes, removed cgroups of {owners} ended processes")
    return EXIT_OK
