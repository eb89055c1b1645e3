"""What the suite needs of a provider, and what more it makes use of where a provider has it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from tiltyard.core.changes import FileChange
from tiltyard.core.errors import SandboxError
from tiltyard.core.execution import Enforcement, ExecResult, Limit, Pty, SandboxSpec, Stdin
from tiltyard.core.files import Entry, TreeTotals
from tiltyard.sandbox.network.decisions import Egress
from tiltyard.sandbox.processes import Process
from tiltyard.sandbox.snapshots import Snapshot


class NotOffered(SandboxError):
    """The provider lacks what a case asks of it."""


class Box(Protocol):
    """What the suite needs of a sandbox. `tiltyard.sandbox.supervised.Sandbox` is one."""

    @property
    def alive(self) -> bool: ...

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = ...,
        cpu_s: int = ...,
        stdin: bytes = ...,
        cwd: str = ...,
        env: Mapping[str, str] | None = ...,
        output_bytes_max: int = ...,
    ) -> ExecResult: ...

    async def write(self, path: str, data: bytes | str, /) -> None: ...

    async def read(self, path: str, /) -> bytes: ...

    async def list(self, path: str = ..., /) -> tuple[Entry, ...]: ...

    async def kill(self) -> None: ...

    async def close(self) -> None: ...


@runtime_checkable
class Spawner(Box, Protocol):
    """A sandbox in which a program can run that nobody waits for, where a provider has such."""

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float | None = ...,
        cpu_s: int = ...,
        stdin: bytes | Stdin = ...,
        cwd: str = ...,
        env: Mapping[str, str] | None = ...,
        pty: Pty | None = ...,
        output_bytes_max: int = ...,
    ) -> Process: ...


@runtime_checkable
class Networked(Box, Protocol):
    """A sandbox that may have a way out, with a record of what went it."""

    @property
    def egress(self) -> Egress | None: ...


class Trees(Protocol):
    """Whole trees into a sandbox and out of it."""

    async def download(self, path: str, tree: Path, /) -> TreeTotals: ...

    async def upload(self, tree: Path, path: str, /) -> TreeTotals: ...


@runtime_checkable
class Treed(Box, Protocol):
    """A sandbox that whole trees can be sent to and fetched from."""

    @property
    def files(self) -> Trees: ...


@runtime_checkable
class Freezable(Box, Protocol):
    """A sandbox that can be frozen and compared, where a provider has such."""

    async def snapshot(self) -> Snapshot: ...

    async def diff(self) -> tuple[FileChange, ...]: ...


class Maker(Protocol):
    """What the suite needs of a provider."""

    @property
    def enforced(self) -> Mapping[Limit, Enforcement]: ...

    @property
    def isolation(self) -> str: ...

    async def create(self, spec: SandboxSpec, /) -> Box: ...


def spawner(box: Box) -> Spawner:
    """The sandbox as one that has it, as with the others below. Raises `NotOffered`."""
    if isinstance(box, Spawner):
        return box
    raise NotOffered("this provider's sandboxes run no program that nobody waits for.")


def networked(box: Box) -> Networked:
    if isinstance(box, Networked):
        return box
    raise NotOffered("this provider's sandboxes keep no record of their way out.")


def treed(box: Box) -> Treed:
    if isinstance(box, Treed):
        return box
    raise NotOffered("this provider sends and fetches no trees.")


def freezable(box: Box) -> Freezable:
    if isinstance(box, Freezable):
        return box
    raise NotOffered("this provider has no snapshots.")
