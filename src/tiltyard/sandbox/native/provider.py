"""The native provider: namespaces, cgroups and seccomp on this machine, as root or as a user."""

import asyncio
import itertools
import os
import signal
import socket
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tiltyard.core.errors import SandboxError, SandboxRefused
from tiltyard.core.execution import Enforcement, Limit, SandboxSpec
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.ending import Usage
from tiltyard.sandbox.native import cgroups
from tiltyard.sandbox.native.image import ENVIRONMENT_HOME, PACKAGES_HOME, Image, host_image
from tiltyard.sandbox.native.launcher import CreateOrder, Launcher
from tiltyard.sandbox.native.programs import native_program
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.supervisor import Supervisor
from tiltyard.sandbox.zygotes import Interpreter

FIRST_HOST_ID = 2_000_000_000
"""Start of the host ids that sandboxes get as root: above all that systemd hands out."""
IDS_PER_SANDBOX = 65_536
ID_RANGES = 30_000
READY_TIMEOUT_S = 20.0
DESTROY_TIMEOUT_S = 10.0
STAGES = ("/mnt", "/media", "/srv", "/opt", "/home", "/var/tmp", "/tmp")  # noqa: S108 - a mount point
"""Where the launcher may mount its stage, which only it sees; the first that hides no source."""

_launchers = itertools.count()


class NativeProvider:
    """Makes sandboxes on this machine. Use with `async with`; its end ends every sandbox."""

    def __init__(self, *, image: Image | None = None) -> None:
        """`image` None shows this machine (`host_image`)."""
        self._image = image
        self._launcher: Launcher | None = None
        self._hierarchies: tuple[cgroups.Hierarchy, ...] = ()
        self._ids = itertools.count(1)
        self._owner = ""
        self.isolation = "root" if os.geteuid() == 0 else "user-namespace"
        """The rung of the ladder that is in force. There is no silent lower one."""
        self.enforced: Mapping[Limit, Enforcement] = {}

    @property
    def interpreter(self) -> Interpreter:
        """The Python inside its sandboxes. Raises `SandboxRefused` when nothing was built."""
        return Interpreter(
            python=f"{ENVIRONMENT_HOME}/bin/python",
            packages=PACKAGES_HOME,
            filter=native_program("seccomp.bpf").read_bytes(),
        )

    async def __aenter__(self) -> Self:
        """Starts the launcher. Raises `SandboxRefused` with the failing call and the fix."""
        if self._image is None:
            self._image = await asyncio.to_thread(host_image)
        image = self._image
        own_start = cgroups.start_time_of(os.getpid())
        self._owner = f"{cgroups.PREFIX}{os.getpid()}-{own_start}-{next(_launchers)}"
        self._hierarchies = usable_hierarchies()
        cgroups.sweep(self._hierarchies, start_time_of=cgroups.start_time_of)
        self.enforced = cgroups.enforcement(self._hierarchies)
        for tree in self._hierarchies:
            cgroups.enable_controllers(tree.base, tree)
        self._launcher = await Launcher.start(
            launcher=native_program("tiltyard-launcher"),
            init=native_program("tiltyard-init"),
            stage=_stage_for(image),
            cgroups=[str(tree.base / self._owner) for tree in self._hierarchies],
        )
        try:
            for tree in self._hierarchies:
                cgroups.enable_controllers(tree.base / self._owner, tree)
            await self._launcher.add_image(0, image.description())
        except BaseException:
            await self.aclose()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.shield(self.aclose())

    async def aclose(self) -> None:
        """Ends the launcher with every sandbox; idempotent."""
        if self._launcher is None:
            return
        await self._launcher.close()
        # The launcher removes its cgroups itself, unless it was killed.
        gone_owner = {tree.base / self._owner for tree in self._hierarchies}
        if any(path.exists() for path in gone_owner):
            mine = os.getpid()
            cgroups.sweep(
                self._hierarchies,
                start_time_of=lambda pid: None if pid == mine else cgroups.start_time_of(pid),
            )

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        """Makes a sandbox. With `for_zygotes`, one that may start zygotes.

        Raises `SandboxRefused` when the machine cannot hold a limit or lacks a feature.
        """
        launcher, image = self._launcher, self._image
        if launcher is None or image is None:
            raise SandboxError("the provider is not open.", fix="use it with `async with`.")
        self._check(spec, image)
        number = next(self._ids)
        id_ = SandboxId(f"s{number}")
        plan = cgroups.plan(
            self._hierarchies,
            owner=self._owner,
            sandbox=id_,
            limits=spec.limits,
            swap=_swap_is_accounted(self._hierarchies),
        )
        control, pidfd = await launcher.create(
            CreateOrder(
                id=id_,
                image=0,
                disk_bytes=spec.limits.disk_bytes,
                inodes=spec.limits.inodes,
                for_zygotes=for_zygotes,
                first_id=FIRST_HOST_ID + (os.getpid() + number) % ID_RANGES * IDS_PER_SANDBOX,
                directories=plan.directories,
                settings=plan.settings,
            )
        )
        return await self._connect(launcher, image, id_, spec, control, pidfd)

    async def _connect(
        self,
        launcher: Launcher,
        image: Image,
        id_: SandboxId,
        spec: SandboxSpec,
        control: socket.socket,
        pidfd: int,
    ) -> Sandbox:
        destroyed = False

        async def destroy() -> None:
            nonlocal destroyed
            if destroyed:
                return
            destroyed = True
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it has ended already; what is left is to wait for its removal
            finally:
                os.close(pidfd)
            async with asyncio.timeout(DESTROY_TIMEOUT_S):
                await launcher.wait_gone(id_)

        try:
            control.settimeout(0)
            loop = asyncio.get_running_loop()
            _, supervisor = await loop.create_unix_connection(lambda: Supervisor(id_), sock=control)
            async with asyncio.timeout(READY_TIMEOUT_S):
                await supervisor.ready()
        except BaseException as error:
            control.close()
            await asyncio.shield(destroy())
            if isinstance(error, TimeoutError):
                raise SandboxError(f"sandbox {id_} did not become ready.") from None
            raise
        return Sandbox(
            id_=id_,
            spec=spec,
            supervisor=supervisor,
            isolation=self.isolation,
            enforced=self.enforced,
            environment=image.environment,
            read_usage=partial(self._usage, id_),
            destroy=destroy,
        )

    def _usage(self, sandbox_id: SandboxId, *, reset_peak: bool) -> Usage:
        return cgroups.read_usage(
            self._hierarchies, owner=self._owner, sandbox=sandbox_id, reset_peak=reset_peak
        )

    def _check(self, spec: SandboxSpec, image: Image) -> None:
        if spec.image != image.name:
            raise SandboxRefused(f"unknown image {spec.image!r}.", fix=f"use {image.name!r}.")
        limits = spec.limits
        for name in ("memory_bytes", "pids", "cpus", "open_files", "disk_bytes", "inodes"):
            if not 0 < getattr(limits, name) < 2**50:
                raise SandboxRefused(
                    f"the limit {name} is {getattr(limits, name)}; it must be positive."
                )
        missing = sorted(
            limit
            for limit, by in self.enforced.items()
            if by is Enforcement.NONE and limit not in spec.allow_unenforced
        )
        if missing:
            raise SandboxRefused(
                f"this machine cannot enforce: {', '.join(missing)} (no cgroup to write to).",
                fix="run as root or in a delegated cgroup, or list them in `allow_unenforced`.",
            )


def usable_hierarchies() -> tuple[cgroups.Hierarchy, ...]:
    """The cgroup trees in which this process may make sandboxes' cgroups."""
    return cgroups.detect(
        cgroups.read_or_empty(Path("/proc/self/mountinfo")),
        cgroups.read_or_empty(Path("/proc/self/cgroup")),
        writable=lambda path: os.access(path, os.W_OK),
        read=cgroups.read_or_empty,
    )


def _swap_is_accounted(hierarchies: tuple[cgroups.Hierarchy, ...]) -> bool:
    for tree in hierarchies:
        if "memory" in tree.controllers:
            name = "memory.memsw.limit_in_bytes" if tree.version == 1 else "memory.swap.max"
            # The root of a v2 tree has no such file, though its children do.
            return (tree.base / name).exists() or tree.version == 2
    return False


def _stage_for(image: Image) -> Path:
    for stage in map(Path, STAGES):
        hides = any(source.is_relative_to(stage) for source in image.sources)
        if stage.is_dir() and not stage.is_symlink() and not hides:
            return stage
    raise SandboxRefused(
        "the launcher finds no directory to mount its stage on.", fix="create /mnt."
    )
