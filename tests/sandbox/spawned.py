"""What tests of running programs share: hearing a program out, and lists of what runs beside it."""

from tiltyard.core.execution import Stream
from tiltyard.sandbox.processes import Process
from tiltyard.sandbox.supervised import Sandbox


async def hear(process: Process, words: bytes) -> bytes:
    """What a program wrote to its standard output, up to the piece with these words in it."""
    heard = b""
    async for chunk in process.chunks():
        if chunk.stream is Stream.STDOUT:
            heard += chunk.data
        if words in heard:
            return heard
    raise AssertionError(f"it ended without saying {words!r}: {heard!r}, {process.tail()}")


async def hear_out(process: Process) -> dict[Stream, bytes]:
    """All that a program writes until it ends. Nothing of it may be missing."""
    heard = dict.fromkeys(Stream, b"")
    async for chunk in process.chunks():
        assert not chunk.skipped_bytes
        heard[chunk.stream] += chunk.data
    return heard


async def running(sandbox: Sandbox) -> set[str]:
    """The command names that run in the sandbox, without the supervisor and this listing."""
    listed = await sandbox.run(["sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null"])
    return set(listed.stdout.text.split()) - {"tiltyard-init", "cat", "sh"}


async def until_left(sandbox: Sandbox, names: set[str]) -> None:
    """Waits until only these run: what was killed takes a moment to be gone."""
    while await running(sandbox) != names:
        pass
