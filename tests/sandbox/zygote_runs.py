"""A program for kept interpreters that runs what it is sent, and ways to talk with it."""

import textwrap

from tiltyard.core.execution import MIB
from tiltyard.sandbox.ending import Ending
from tiltyard.sandbox.zygotes import Run, ZygoteCells, ZygoteProgram

RUNNER = """
import socket, traceback

MARKS = []

def serve(channel):
    while True:
        header = channel.recv(4, socket.MSG_WAITALL)
        if len(header) < 4:
            return
        source = channel.recv(int.from_bytes(header, "little"), socket.MSG_WAITALL).decode()
        names = {"channel": channel, "MARKS": MARKS}
        try:
            exec(source, names)
            answer = str(names.get("answer"))
        except BaseException:
            answer = traceback.format_exc()
        raw = answer.encode()
        channel.sendall(len(raw).to_bytes(4, "little") + raw)
"""
PROGRAM = ZygoteProgram(files={"runner.py": RUNNER}, main="runner.py", run_disk_bytes=4 * MIB)


def send(run: Run, source: str) -> None:
    raw = textwrap.dedent(source).encode()
    run.send(len(raw).to_bytes(4, "little") + raw)


async def ask(run: Run, source: str) -> str:
    send(run, source)
    length = int.from_bytes(await run.channel.take(4), "little")
    return (await run.channel.take(length)).decode()


async def once(cells: ZygoteCells, source: str) -> str:
    async with cells.run(wall_s=20) as run:
        return await ask(run, source)


async def ending(cells: ZygoteCells, source: str, *, wall_s: float = 20, cpu_s: int = 0) -> Ending:
    async with cells.run(wall_s=wall_s, cpu_s=cpu_s) as run:
        send(run, source)
        return await run.ended()


async def same_cell(cells: ZygoteCells) -> str:
    """Names the cell: its network namespace is the one thing that all its runs share."""
    return await once(cells, "import os; answer = os.readlink('/proc/self/ns/net')")
