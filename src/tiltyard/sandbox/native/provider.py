"""The native provider: namespaces, cgroups and seccomp on this machine, as root or as a user."""

import asyncio
import itertools
import math
import os
import resource
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from tiltyard.core.errors import SandboxError, SandboxRefused
from tiltyard.core.execution import (
    MIB,
    Enforcement,
    Limit,
    Limits,
    NetworkMode,
    SandboxSpec,
    open_limits,
)
from tiltyard.core.ids import SandboxId
from tiltyard.sandbox.native import cgroups
from tiltyard.sandbox.native.counters import CounterFiles
from tiltyard.sandbox.native.create import CreateOrder
from tiltyard.sandbox.native.hold import NativeHold
from tiltyard.sandbox.native.id_ranges import IdRanges
from tiltyard.sandbox.native.image import ENVIRONMENT_HOME, PACKAGES_HOME, Image, host_image
from tiltyard.sandbox.native.launcher import End, Launcher, Made
from tiltyard.sandbox.native.layers import Layers
from tiltyard.sandbox.native.netns import order_of
from tiltyard.sandbox.native.outlet import Outlet, check_bandwidth
from tiltyard.sandbox.native.programs import native_program
from tiltyard.sandbox.native.slots import Slot, Slots
from tiltyard.sandbox.network.proxy import Proxies
from tiltyard.sandbox.network.resolver import Resolver, SystemResolver
from tiltyard.sandbox.network.rules import Rules, rules_of
from tiltyard.sandbox.network.variables import proxy_variables
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.supervisor import Supervisor
from tiltyard.sandbox.zygotes import Interpreter

READY_TIMEOUT_S = 20.0
REMOVE_TRIES_MAX = 2_000
REMOVE_RETRY_S = 0.005
MEMORY_BYTES_MIN = 16 * MIB
"""Less does not hold the supervisor and the smallest program with their kernel memory."""
PIDS_MAX = 2**22
"""The kernel's own limit."""
SIZE_BYTES_MAX = 2**50
LIFETIME_S_MAX = 30 * 24 * 3600
STAGES = ("/mnt", "/media", "/srv", "/opt", "/home", "/var/tmp", "/tmp")  # noqa: S108 - a mount point
"""Where the launcher may mount its stage, which only it sees; the first that hides no source."""

_launchers = itertools.count()
_log = structlog.get_logger(__name__)


class NativeProvider:
    """Makes sandboxes on this machine. Use with `async with`; its end ends every sandbox."""

    def __init__(
        self,
        *,
        image: Image | None = None,
        resolver: Resolver | None = None,
        sweep_every_s: float = 600.0,
    ) -> None:
        """`image` None shows this machine (`host_image`); `resolver` None asks as its programs do,
        and belongs to the provider. What dead owners left is looked for every `sweep_every_s`."""
        self._image = image
        self._launcher: Launcher | None = None
        self._layers: Layers | None = None
        self._slots: Slots | None = None
        self._hierarchies: tuple[cgroups.Hierarchy, ...] = ()
        self._ids = itertools.count(1)
        self._ranges = IdRanges()
        self._sweep_every_s = sweep_every_s
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._connected: set[Supervisor] = set()
        self._proxies = Proxies(SystemResolver() if resolver is None else resolver)
        self._counters = CounterFiles()
        self._owner = ""
        self._name = ""
        self._as_root = os.geteuid() == 0
        self.isolation = "root" if self._as_root else "user-namespace"
        """The rung of the ladder that is in force. There is no silent lower one."""
        self.enforced: Mapping[Limit, Enforcement] = {}

    @property
    def image_digest(self) -> str:
        """Of what its sandboxes start from; empty when it is not open."""
        return self._image.digest if self._image else ""

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
        own_start, number = cgroups.start_time_of(os.getpid()), next(_launchers)
        self._owner = f"{cgroups.PREFIX}{os.getpid()}-{own_start}-{number}"
        self._name = f"s{os.getpid()}-{number}"
        self._hierarchies = usable_hierarchies()
        swap = _swap_is_accounted(self._hierarchies)
        await asyncio.to_thread(
            cgroups.sweep, self._hierarchies, start_time_of=cgroups.start_time_of
        )
        self.enforced = {
            **cgroups.enforcement(self._hierarchies),
            # Whether the kernel has it is seen when it is used: see `check_bandwidth`.
            Limit.NETWORK: Enforcement.QDISC,
        }
        self._enable(tree.base for tree in self._hierarchies)
        try:
            self._launcher = await Launcher.start(
                launcher=native_program("tiltyard-launcher"),
                stage=_stage_for(image),
                cgroups={
                    str(tree.base / self._owner): cgroups.handed_on(tree)
                    for tree in self._hierarchies
                },
                # Sandboxes end a moment after a host that was killed, and have their ids till then.
                held=[self._ranges.claim()] if self._as_root else [],
            )
        except BaseException:
            self._ranges.close()
            raise
        try:
            await self._proxies.open()
            self._enable(tree.base / self._owner for tree in self._hierarchies)
            await self._launcher.add_image(0, image.description())
            self._layers = Layers(self._launcher)
            self._slots = Slots(
                self._hierarchies, owner=self._owner, swap=swap, counters=self._counters
            )
            self._sweep_later()
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
        """Ends the launcher with every sandbox; idempotent.

        Raises `SandboxError` when cgroups of its sandboxes cannot be removed.
        """
        if self._launcher is None:
            return
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await self._launcher.close()
        self._ranges.close()
        # Its sandboxes are dead; nobody need have closed them for their sockets to go.
        for supervisor in tuple(self._connected):
            await supervisor.disconnect()
        await self._proxies.aclose()
        self._counters.close_all()
        # The launcher removes its cgroups itself, unless it was killed. Then its sandboxes are
        # dying, and the kernel keeps a cgroup until the last process is gone.
        for _ in range(REMOVE_TRIES_MAX):
            if cgroups.remove_owner(self._hierarchies, self._owner):
                return
            await asyncio.sleep(REMOVE_RETRY_S)
        raise SandboxError(
            f"cgroups of {self._owner} cannot be removed: processes in them do not end.",
            fix="end those processes; the next start removes the cgroups.",
        )

    def places(self) -> frozenset[str]:
        """The cgroups that its sandboxes have now; not those that wait, empty, for another."""
        there = cgroups.directories_of(self._hierarchies, self._owner)
        free = self._slots.free if self._slots is not None else ()
        return there - {place for slot in free for place in slot.plan.directories}

    def _sweep_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(self._sweep_every_s, self._sweep_beside)

    def _sweep_beside(self) -> None:
        sweep = partial(cgroups.sweep, self._hierarchies, start_time_of=cgroups.start_time_of)
        sweeping = asyncio.get_running_loop().run_in_executor(None, sweep)
        sweeping.add_done_callback(self._swept)

    def _swept(self, sweeping: "asyncio.Future[int]") -> None:
        if not sweeping.cancelled() and (error := sweeping.exception()) is not None:
            _log.warning("sweep_failed", error=str(error))
        if self._launcher is not None and self._launcher.alive:
            self._sweep_later()

    def _enable(self, directories: Iterable[Path]) -> None:
        for tree, directory in zip(self._hierarchies, directories, strict=True):
            try:
                cgroups.enable_controllers(directory, tree)
            except OSError as error:
                raise SandboxRefused(
                    f"cgroup controllers cannot be used in {directory}: {error.strerror}.",
                    fix="run in a cgroup of its own: `systemd-run --scope -p Delegate=yes`.",
                ) from None

    async def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        """Makes a sandbox. With `for_zygotes`, one that may start zygotes.

        Raises `SandboxRefused` when the machine cannot hold a limit or lacks a feature.
        """
        launcher, image, layers = self._launcher, self._image, self._layers
        slots = self._slots
        if launcher is None or image is None or layers is None or slots is None:
            raise SandboxError("the provider is not open.", fix="use it with `async with`.")
        launcher.check_alive()
        rules = rules_of(spec.network)
        self._check(spec, image, for_zygotes=for_zygotes)
        # Before anything is taken: what is refused here has nothing to give back.
        snapshot, network = layers.number_of(spec), order_of(spec.network)
        id_ = SandboxId(f"{self._name}-{next(self._ids)}")
        # From here to the launcher's answer nothing may raise: only `gone` gives these back.
        first_id = self._ranges.take() if self._as_root else 0
        slot, unused = slots.take(spec.limits, networked=spec.network.mode != NetworkMode.NONE)
        gone: asyncio.Future[End] = asyncio.get_running_loop().create_future()
        gone.add_done_callback(partial(self._take_back, slot, first_id))
        ends_s = asyncio.get_running_loop().time() + spec.lifetime_s
        made = await launcher.create(
            CreateOrder(
                id=id_,
                image=0,
                disk_bytes=spec.limits.disk_bytes,
                inodes=spec.limits.inodes,
                for_zygotes=for_zygotes,
                snapshot=snapshot,
                writable=spec.writable,
                lifetime_s=math.ceil(spec.lifetime_s),
                first_id=first_id,
                network=network,
                oom_file=slot.files.oom,
                pids_file=slot.files.pids_now,
                memory_file=slot.files.memory,
                residue_bytes=slot.residue_bytes,
                there=slot.there,
                directories=slot.plan.directories,
                grouped=slot.plan.grouped,
                unused=unused,
                settings=() if slot.there else slot.plan.settings,
            ),
            gone=gone,
        )
        hold = NativeHold(
            id_,
            pidfd=made.pidfd,
            gone=gone,
            slot=slot,
            counters=self._counters,
            layers=layers,
        )
        supervisor = await self._complete(id_, made, hold, spec, rules)
        self._connected.add(supervisor)
        supervisor.lost.add_done_callback(lambda _: self._connected.discard(supervisor))
        outlet = hold.outlet
        return Sandbox(
            id_=id_,
            spec=spec,
            supervisor=supervisor,
            isolation=self.isolation,
            enforced={**self.enforced, **(outlet.enforced if outlet else {})},
            environment={**image.environment, **(proxy_variables() if outlet else {})},
            hold=hold,
            ends_s=ends_s,
            egress=outlet,
        )

    def _take_back(self, slot: Slot, first_id: int, gone: "asyncio.Future[End]") -> None:
        """What a sandbox had that is gone, or was never made."""
        if self._slots is not None:
            self._slots.give_back(slot, gone.result())
        if first_id:
            self._ranges.give_back(first_id)

    async def _complete(
        self, id_: SandboxId, made: Made, hold: NativeHold, spec: SandboxSpec, rules: Rules
    ) -> Supervisor:
        """Waits until the sandbox is complete. Raises `SandboxError`, with nothing left behind."""
        supervisor = Supervisor(id_)
        try:
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(READY_TIMEOUT_S):
                if made.handed is not None:
                    hold.outlet = Outlet(id_, made.handed, proxies=self._proxies, rules=rules)
                    await check_bandwidth(hold.outlet, spec, id_)
                await loop.create_unix_connection(lambda: supervisor, sock=made.control)
                await supervisor.ready()
        except BaseException as error:
            # Killed at once; whoever is cancelled does not wait for the rest: the launcher does it.
            hold.destroy()
            supervisor.abort()
            made.control.close()
            if isinstance(error, TimeoutError):
                raise SandboxError(f"sandbox {id_} did not become ready.") from None
            raise
        return supervisor

    def _check(self, spec: SandboxSpec, image: Image, *, for_zygotes: bool) -> None:
        if spec.image != image.name:
            raise SandboxRefused(f"unknown image {spec.image!r}.", fix=f"use {image.name!r}.")
        if spec.writable and not self._as_root:
            raise SandboxRefused(
                "an ordinary user cannot make a sandbox that may change the image's files: they "
                "belong to an id that it does not have.",
                fix="run as root, or leave `writable` off.",
            )
        lifetime_s = spec.lifetime_s
        if type(lifetime_s) not in (int, float) or not 1 <= lifetime_s <= LIFETIME_S_MAX:
            raise SandboxRefused(
                f"lifetime_s is {lifetime_s!r}, and must be from 1 to {LIFETIME_S_MAX}.",
                fix="correct it.",
            )
        problem = _problem_with(spec.limits)
        if problem:
            raise SandboxRefused(f"a limit cannot be held: {problem}.", fix="correct it.")
        if for_zygotes and spec.network.mode != NetworkMode.NONE:
            # One run after another has the same network namespace, where a run could leave things.
            raise SandboxRefused(
                f"kept interpreters have no network, and the spec wants {spec.network.mode}.",
                fix="use the mode `none` for them, or run the program in a sandbox.",
            )
        missing = sorted(set(open_limits(self.enforced)) - spec.allow_unenforced)
        if missing:
            raise SandboxRefused(
                f"this machine cannot enforce: {', '.join(missing)}, for a whole sandbox "
                "(no cgroup to write to).",
                fix="run as root or in a delegated cgroup, or list them in `allow_unenforced`.",
            )


def _problem_with(limits: Limits) -> str:
    """What is wrong with the limits; empty when nothing is."""
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    bounds: dict[str, tuple[float, float]] = {
        "memory_bytes": (MEMORY_BYTES_MIN, SIZE_BYTES_MAX),
        "pids": (1, PIDS_MAX),
        "cpus": (0.01, 4096),
        "open_files": (16, files_max if files_max != resource.RLIM_INFINITY else PIDS_MAX),
        "disk_bytes": (MIB, SIZE_BYTES_MAX),
        "inodes": (256, PIDS_MAX),
    }
    for name, (least, most) in bounds.items():
        value = getattr(limits, name)
        kinds = (int, float) if name == "cpus" else int
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            whole = "" if name == "cpus" else "a whole number "
            return f"{name} is {value!r}, and must be {whole}from {least} to {most} here"
    return ""


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
