"""What a run holds, read from the host's side: as root and as an ordinary user."""

from textwrap import dedent

import pytest

from sandbox.zygote_runs import ask
from tiltyard.core.execution import MIB
from tiltyard.sandbox.footprint import Footprint
from tiltyard.sandbox.zygotes import Run, ZygoteCells

pytestmark = pytest.mark.sandbox

CHILD = """
import os
told, tell = os.pipe()
if os.fork() == 0:
    {daemon}
    block = bytearray(os.urandom(16)) * ({size} // 16)
    os.write(tell, b"x")
    while True:
        import signal; signal.pause()
os.read(told, 1)
"""


async def footprint(run: Run) -> Footprint:
    found = await run.footprint()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("source", "processes", "threads", "descriptors", "private_mib"),
    [
        ("import os\nKEPT = [os.dup(1) for _ in range(9)]", 0, 0, 9, 0),
        ("MARKS.append(bytearray(os.urandom(16)) * (1 << 20))", 0, 0, 0, 16),
        (
            """
            import threading
            for _ in range(3):
                threading.Thread(target=threading.Event().wait, daemon=True).start()
            """,
            *(0, 3, 0, 0),
        ),
        (
            """
            import mmap
            MARKS.append(mmap.mmap(-1, 8 << 20))
            for at in range(0, 8 << 20, 4096):
                MARKS[-1][at] = 1
            """,
            *(0, 0, 0, 8),
        ),
        (CHILD.format(size=16 * MIB, daemon="pass"), 1, 1, None, 16),
        (CHILD.format(size=16 * MIB, daemon="os.fork() and os._exit(0)"), None, 1, None, 16),
    ],
    ids=["descriptors", "heap", "threads", "mapping", "child", "daemon"],
)
async def test_what_is_held_is_seen(
    cells: ZygoteCells,
    source: str,
    processes: int | None,
    threads: int,
    descriptors: int | None,
    private_mib: int,
) -> None:
    """None: of that, at least one more."""
    async with cells.run(wall_s=20) as run:
        assert await ask(run, "import os") == "None"
        before = await footprint(run)
        await ask(run, f"import os\n{dedent(source)}")
        after = await footprint(run)
    for expected, added in (
        (processes, after.processes - before.processes),
        (descriptors, after.descriptors - before.descriptors),
    ):
        assert added >= 1 if expected is None else added == expected
    assert after.threads - before.threads == threads
    added_bytes = after.private_bytes - before.private_bytes
    assert abs(added_bytes - private_mib * MIB) < 3 * MIB


async def test_io_counts_what_passed(cells: ZygoteCells) -> None:
    async with cells.run(wall_s=20) as run:
        await ask(run, "import os")
        before = await footprint(run)
        await ask(run, "open('/tmp/x', 'wb').write(bytes(1 << 20))")
        after = await footprint(run)
    assert 1 << 20 <= after.io_bytes - before.io_bytes < 2 << 20


async def test_a_run_begins_anew(cells: ZygoteCells) -> None:
    """Nothing of one run is in the next one's footprint, nor in its peak of memory."""
    held: list[Footprint] = []
    peaks: list[int] = []
    large = "x = bytearray(b'1') * (64 << 20)\nimport os; KEPT = os.dup(1)"
    for source in ("x = 1", large, "x = 1"):
        async with cells.run(wall_s=20) as run:
            await ask(run, source)
            held.append(await footprint(run))
            peaks.append(run.used().memory_peak_bytes or 0)
    assert held[2].descriptors == held[0].descriptors
    if peaks[1]:  # where a cgroup counts memory
        assert peaks[1] > 60 * MIB
        assert peaks[2] < 16 * MIB


async def test_nothing_is_left_to_see(cells: ZygoteCells) -> None:
    async with cells.run(wall_s=20) as run:
        await ask(run, "x = 1")
        await run.end()
        assert (await footprint(run)).processes == 0
