"""What the host asks of an attacked sandbox's files, with the time and the memory that it took."""

import asyncio
import tempfile
from pathlib import Path

from tiltyard.core.errors import SandboxError
from tiltyard.sandbox.conformance.boxes import Box, Maker, NotOffered, freezable, treed
from tiltyard.sandbox.conformance.case import UPLOADED, FileOperation, FileReply, FileRequest
from tiltyard.sandbox.conformance.host import PREFIX, shared_memory_bytes

READ_KEPT_BYTES = 1024


class Smuggled(SandboxError):
    """A tree that was fetched holds what it must not."""


class Asker:
    """Asks one sandbox."""

    def __init__(self, box: Box, maker: Maker, secret_path: str) -> None:
        self._box = box
        self._maker = maker
        self._secret_path = secret_path

    async def ask(self, request: FileRequest) -> FileReply:
        """Asks as often as is wanted, and keeps the last error that was met."""
        await asyncio.sleep(request.after_s)
        loop = asyncio.get_running_loop()
        path = request.path.replace("{secret}", self._secret_path)
        content, names, start_s = b"", list[str](), loop.time()
        error, grown_bytes = "", 0
        for _ in range(request.times):
            try:
                match request.operation:
                    case FileOperation.READ:
                        content += (await self._box.read(path))[:READ_KEPT_BYTES]
                    case FileOperation.WRITE:
                        await self._box.write(path, request.content)
                    case FileOperation.LIST:
                        names += [entry.name for entry in await self._box.list(path)]
                    case FileOperation.DIFF:
                        changes = await freezable(self._box).diff()
                        names += [change.path for change in changes]
                    case FileOperation.FORK:
                        before = shared_memory_bytes()
                        got, held = await self._read_in_fork(path)
                        content += got
                        grown_bytes = max(grown_bytes, held - before)
                    case FileOperation.DOWNLOAD:
                        got, found = await self._download(path)
                        content += got
                        names += found
                    case FileOperation.UPLOAD:
                        await self._upload(path, request.content)
            except NotOffered:
                raise
            except (SandboxError, ValueError) as caught:
                error = _public_name(caught)
        return FileReply(
            request=request,
            content=content,
            names=tuple(names),
            error=error,
            elapsed_s=loop.time() - start_s,
            grown_bytes=grown_bytes,
        )

    async def _read_in_fork(self, path: str) -> tuple[bytes, int]:
        async with await freezable(self._box).snapshot() as snapshot:
            held = shared_memory_bytes()
            fork = await self._maker.create(snapshot.spec)
            try:
                return (await fork.read(path))[:READ_KEPT_BYTES], held
            finally:
                await fork.close()

    async def _download(self, path: str) -> tuple[bytes, list[str]]:
        files = treed(self._box).files
        with tempfile.TemporaryDirectory(prefix=PREFIX) as directory:
            tree = Path(directory) / "tree"
            await files.download(path, tree)
            return await asyncio.to_thread(_plain_tree, tree)

    async def _upload(self, path: str, content: bytes) -> None:
        files = treed(self._box).files
        with tempfile.TemporaryDirectory(prefix=PREFIX) as directory:
            tree = Path(directory) / "tree"
            await asyncio.to_thread(_plant, tree / UPLOADED, content)
            await files.upload(tree, path)


def _plain_tree(tree: Path) -> tuple[bytes, list[str]]:
    """What arrived. Raises `Smuggled` for whatever is neither a directory nor a plain file."""
    content, names = b"", list[str]()
    for place in sorted(tree.rglob("*")):
        if place.is_symlink() or not (place.is_dir() or place.is_file()):
            raise Smuggled(f"{place.name!r} is no plain file.")
        if place.stat().st_mode & 0o7022:
            raise Smuggled(f"{place.name!r} has the mode {place.stat().st_mode:o}.")
        names.append(str(place.relative_to(tree)))
        if place.is_file():
            content += place.read_bytes()[:READ_KEPT_BYTES]
    return content, names


def _plant(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True)
    place.write_bytes(content)


def _public_name(error: SandboxError | ValueError) -> str:
    """The name of the nearest of the errors that every provider has, or of a builtin one."""
    shared = {SandboxError.__module__, ValueError.__module__}
    return next(kind for kind in type(error).__mro__ if kind.__module__ in shared).__name__
