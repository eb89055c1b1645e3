"""Providers that contain too little, to see that the suite says so.

`PlainMaker` runs programs as ordinary processes: only what is harmless on a machine without any
containment may be run with it. `Loosened` makes real sandboxes with larger limits than were asked
for, so that what is too much for the limits harms nobody. `Ajar` opens a proxy to the host's own
loopback and to names of the suite's resolver.
"""

import asyncio
import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tiltyard.core.errors import SandboxFileError
from tiltyard.core.execution import (
    Enforcement,
    ExecResult,
    Limit,
    NetworkMode,
    Reason,
    SandboxSpec,
    StreamCapture,
)
from tiltyard.core.files import Entry
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox


class PlainBox:
    """A directory and the process groups started in it."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="tiltyard-weak-")
        self._groups: list[int] = []
        self.alive = True

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 60.0,
        cpu_s: int = 0,
        stdin: bytes = b"",
        cwd: str = "/workspace",
        env: Mapping[str, str] | None = None,
        output_bytes_max: int = 0,
    ) -> ExecResult:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._directory.name if cwd == "/workspace" else cwd,
            env={"PATH": os.environ["PATH"], **(env or {})},
            start_new_session=True,
        )
        self._groups.append(process.pid)
        out, err = await asyncio.wait_for(process.communicate(stdin), timeout_s)
        code = process.returncode or 0
        return ExecResult(
            reason=Reason.EXIT if code >= 0 else Reason.SIGNAL,
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            stdout=StreamCapture(head=out, total_bytes=len(out)),
            stderr=StreamCapture(head=err, total_bytes=len(err)),
            wall_s=0.0,
            cpu_s=0.0,
            memory_peak_bytes=0,
        )

    async def write(self, path: str, data: bytes | str, /) -> None:
        raw = data.encode() if isinstance(data, str) else data
        self._place(path).write_bytes(raw)

    async def read(self, path: str, /) -> bytes:
        try:
            return self._place(path).read_bytes()
        except OSError as error:
            raise SandboxFileError(str(error)) from None

    async def list(self, path: str = ".", /) -> tuple[Entry, ...]:
        places = sorted(self._place(path).iterdir())
        return tuple(Entry(name=place.name, mode=stat.S_IFREG, size_bytes=0) for place in places)

    async def kill(self) -> None:
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)

    async def close(self) -> None:
        await self.kill()
        self.alive = False
        self._directory.cleanup()

    def _place(self, path: str) -> Path:
        return Path(self._directory.name) / path


class PlainMaker:
    """Makes places that contain nothing, and says that every limit is held."""

    enforced: Mapping[Limit, Enforcement] = dict.fromkeys(Limit, Enforcement.CGROUP)
    isolation = "none"

    async def create(self, spec: SandboxSpec, /) -> PlainBox:
        return PlainBox()


class StandsStill(PlainMaker):
    """Holds up the whole process once, when it is first asked to run `word`."""

    def __init__(self, word: str, *, seconds: float) -> None:
        self._word = word
        self._seconds = seconds

    async def create(self, spec: SandboxSpec, /) -> PlainBox:
        return HeldUp(self.hold_up)

    def hold_up(self, argv: Sequence[str]) -> None:
        if self._seconds and any(self._word in each for each in argv):
            subprocess.run(["sleep", str(self._seconds)], check=True)
            self._seconds = 0.0


class HeldUp(PlainBox):
    """A place of `StandsStill`."""

    def __init__(self, hold_up: Callable[[Sequence[str]], None]) -> None:
        super().__init__()
        self._hold_up = hold_up

    async def run(self, argv: Sequence[str], **options: Any) -> ExecResult:
        self._hold_up(argv)
        return await super().run(argv, **options)


class FallsSilent(PlainMaker):
    """Its sandboxes do not answer a question for a file, that many times."""

    def __init__(self, *, times: int) -> None:
        self.times = times

    async def create(self, spec: SandboxSpec, /) -> PlainBox:
        return Silent(self)


class Silent(PlainBox):
    """A place of `FallsSilent`."""

    def __init__(self, maker: FallsSilent) -> None:
        super().__init__()
        self._maker = maker

    async def read(self, path: str, /) -> bytes:
        if path == "own" and self._maker.times:
            self._maker.times -= 1
            await asyncio.Event().wait()
        return await super().read(path)


class Loosened:
    """The native provider, with several times the limits that it is asked for."""

    def __init__(self, provider: NativeProvider) -> None:
        self._provider = provider
        self.enforced = provider.enforced
        self.isolation = provider.isolation

    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        asked = spec.limits
        more = replace(
            asked,
            pids=asked.pids * 8,
            memory_bytes=asked.memory_bytes * 4,
            disk_bytes=asked.disk_bytes * 3,
            inodes=asked.inodes * 4,
        )
        return await self._provider.create(replace(spec, limits=more))


class Ajar:
    """The native provider, with a way out that leads further than it was asked for."""

    def __init__(self, provider: NativeProvider) -> None:
        self._provider = provider
        self.enforced = provider.enforced
        self.isolation = provider.isolation

    async def create(self, spec: SandboxSpec, /) -> Sandbox:
        asked = spec.network
        if asked.mode in {NetworkMode.ALLOW, NetworkMode.OPEN}:
            more = ("*.example:*", "*.internal:*", "localhost:*", "127.0.0.0/8:*", "[::1]:*")
            asked = replace(asked, mode=NetworkMode.ALLOW, allow=(*asked.allow, *more))
        return await self._provider.create(replace(spec, network=asked))
