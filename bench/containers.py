"""Container systems as peers: runc, crun and runsc by a bundle, and docker where a daemon answers.

Each gets what our own sandbox has, as far as it can: a read-only root of the machine's `/usr`, a
private `/tmp`, a namespace of each kind, no network, no capabilities, and limits for memory,
processes and CPU. None has a system-call filter here: a bundle has only what it lists.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import tarfile
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from board import Board
from peers import python_trees, run_program
from race import PeerFailed, System
from tiltyard.core.execution import Limits

CALL_TIMEOUT_S = 20.0
"""A runsc that takes a wrong platform hangs for ever; so may a daemon."""
DOCKER_IMAGE = "tiltyard-bench:latest"
CPU_PERIOD_US = 100_000
LIMITS = Limits()
MOUNTS = Path("/proc/self/mountinfo")

_Once = Callable[[], Awaitable[None]]


@asynccontextmanager
async def container_peers(
    board: Board, bench: str, program: Sequence[str]
) -> AsyncIterator[list[System]]:
    """The container systems that work here, ready; the others are left out with the reason."""
    openers = {"runc": _runc, "crun": _crun, "runsc": _runsc, "docker": _docker}
    async with AsyncExitStack() as stack:
        name = stack.enter_context(tempfile.TemporaryDirectory(prefix="tiltyard-bench-"))
        bundle = Path(name)
        write_bundle(bundle, program)
        racing = []
        for peer, opener in openers.items():
            try:
                once = await opener(stack, bundle, program)
                await once()
            except PeerFailed as error:
                board.leave_out(f"{bench}/{peer}", str(error))
            else:
                racing.append(System(name=peer, once=once, peer=True))
        yield racing


def write_bundle(directory: Path, program: Sequence[str]) -> None:
    """An OCI bundle whose root is little more than this machine's `/usr`."""
    root = directory / "rootfs"
    for name in ("usr", "proc", "dev", "tmp"):
        (root / name).mkdir(parents=True)
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["size=64k"]},
        {
            "destination": "/tmp",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["nosuid", "nodev", f"size={LIMITS.disk_bytes}"],
        },
        _shown(Path("/usr")),
    ]
    for path in (Path("/bin"), Path("/sbin"), *sorted(Path("/").glob("lib*"))):
        if path.is_symlink():
            (root / path.name).symlink_to(path.readlink())
        elif path.is_dir():
            (root / path.name).mkdir()
            mounts.append(_shown(path))
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": list(program),
            "env": [f"PATH={os.defpath}"],
            "cwd": "/",
            "capabilities": {"bounding": [], "effective": [], "permitted": []},
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "sandbox",
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "network", "ipc", "uts", "mount")],
            "resources": {
                "memory": {"limit": LIMITS.memory_bytes},
                "pids": {"limit": LIMITS.pids},
                "cpu": {"quota": round(LIMITS.cpus * CPU_PERIOD_US), "period": CPU_PERIOD_US},
            },
        },
    }
    (directory / "config.json").write_text(json.dumps(config))


def _shown(path: Path) -> dict[str, object]:
    source = os.fspath(path)
    return {"destination": source, "type": "bind", "source": source, "options": ["rbind", "ro"]}


def _found(name: str, *, root_only: bool = True) -> str:
    program = shutil.which(name)
    if program is None:
        raise PeerFailed(f"{name} is not installed")
    if root_only and os.geteuid() != 0:
        raise PeerFailed(f"{name} is used as root only: without, it holds no limits")
    return program


def _by_bundle(start: Sequence[str], directory: Path) -> _Once:
    """Runs the bundle under a new name each time."""
    numbers = itertools.count()
    options = ["run", "--bundle", os.fspath(directory)]

    async def once() -> None:
        name = f"tiltyard-bench-{os.getpid()}-{next(numbers)}"
        try:
            await run_program([*start, *options, name], timeout_s=CALL_TIMEOUT_S)
        except BaseException:
            # The runtime was ended, and with some that leaves the container behind.
            with contextlib.suppress(PeerFailed):
                delete = [*start, "delete", "--force", name]
                await asyncio.shield(run_program(delete, timeout_s=CALL_TIMEOUT_S))
            raise

    return once


async def _runc(_stack: AsyncExitStack, directory: Path, _program: Sequence[str]) -> _Once:
    return _by_bundle([_found("runc"), "--root", f"{directory}/runc"], directory)


async def _runsc(_stack: AsyncExitStack, directory: Path, _program: Sequence[str]) -> _Once:
    start = [_found("runsc"), "--root", f"{directory}/runsc", "--platform=ptrace", "--network=none"]
    return _by_bundle(start, directory)


async def _crun(stack: AsyncExitStack, directory: Path, _program: Sequence[str]) -> _Once:
    """crun refuses to work where cgroups of both versions are mounted: it is not shown the second.

    It is started through a mount namespace without that one, which costs it a millisecond.
    """
    start = [_found("crun"), "--root", f"{directory}/crun"]
    hidden = hybrid_mount(await asyncio.to_thread(MOUNTS.read_text))
    if hidden is None:
        return _by_bundle(start, directory)
    script = 'umount "$0" && echo hidden && exec sleep 86400'
    holder = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "--propagation", "private", "sh", "-c", script, hidden),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=DEVNULL,
    )
    stack.push_async_callback(_ended, holder)
    assert holder.stdout is not None  # noqa: S101 - it is a pipe
    if await holder.stdout.readline() != b"hidden\n":
        raise PeerFailed(
            f"crun does not take hybrid cgroups, and {hidden} cannot be hidden from it"
        )
    enter = ["nsenter", f"--mount=/proc/{holder.pid}/ns/mnt", "--"]
    return _by_bundle([*enter, *start], directory)


def hybrid_mount(mountinfo: str) -> str | None:
    """Where cgroups of version 2 are mounted beside those of version 1; None where they are not."""
    kinds = {}
    for line in mountinfo.splitlines():
        place, _, kind = line.partition(" - ")
        kinds[kind.split(" ")[0]] = place.split(" ")[4]
    return kinds.get("cgroup2") if "cgroup" in kinds else None


async def _ended(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def _docker(stack: AsyncExitStack, directory: Path, program: Sequence[str]) -> _Once:
    argv = [*await _docker_start(stack, directory), DOCKER_IMAGE, *program]

    async def once() -> None:
        await run_program(argv, timeout_s=CALL_TIMEOUT_S)

    return once


async def docker_pytest(
    stack: AsyncExitStack, program: Sequence[str]
) -> Callable[[Path], list[str]]:
    """The command that runs `program` over a directory, in a container of its own.

    Raises PeerFailed where no daemon answers.
    """
    name = stack.enter_context(tempfile.TemporaryDirectory(prefix="tiltyard-bench-"))
    write_bundle(Path(name), program)
    start = await _docker_start(stack, Path(name))
    shown = [f"--volume={tree}:{tree}:ro" for tree in python_trees()]

    def wrapped(directory: Path) -> list[str]:
        place = [f"--volume={directory}:/workspace", "--workdir=/workspace"]
        return [*start, *shown, *place, DOCKER_IMAGE, *program]

    return wrapped


async def _docker_start(stack: AsyncExitStack, directory: Path) -> list[str]:
    """The start of a command, up to the image, which is there until `stack` closes."""
    docker = _found("docker", root_only=False)
    try:
        await run_program([docker, "version"], timeout_s=CALL_TIMEOUT_S)
    except PeerFailed:
        raise PeerFailed("no docker daemon answers") from None
    archive = directory / "rootfs.tar"
    with tarfile.open(archive, "w") as packed:
        packed.add(directory / "rootfs", arcname=".")
    await run_program([docker, "import", os.fspath(archive), DOCKER_IMAGE])
    stack.push_async_callback(run_program, [docker, "image", "rm", "--force", DOCKER_IMAGE])
    return [
        *(docker, "run", "--rm", "--network=none", "--read-only", "--tmpfs=/tmp"),
        *("--cap-drop=ALL", "--security-opt=no-new-privileges", "--volume=/usr:/usr:ro"),
        *(f"--memory={LIMITS.memory_bytes}", f"--pids-limit={LIMITS.pids}"),
        f"--cpus={LIMITS.cpus}",
    ]
