"""The synchronous twin of `tiltyard.sandbox.native.provider.NativeProvider`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from collections.abc import Mapping

from tiltyard.core.execution import Enforcement, Limit, SandboxSpec
from tiltyard.sandbox.network.resolver import Resolver as AsyncResolver
from tiltyard.sync.twin import OpenTwin, Twin
from tiltyard.sync.twins.sandbox import Sandbox
from tiltyard.wiring import Image, NativeProvider as AsyncNativeProvider


class NativeProvider(OpenTwin[AsyncNativeProvider]):
    """Makes sandboxes on this machine. Use with `with`; its end ends every sandbox."""

    def __init__(
        self,
        *,
        image: Image | None = None,
        resolver: Twin[AsyncResolver] | None = None,
        sweep_every_s: float = 600.0,
    ) -> None:
        """`image` None shows this machine (`host_image`); `resolver` None asks as its programs do,
        and belongs to the provider. What dead owners left is looked for every `sweep_every_s`.
        """
        super().__init__(
            AsyncNativeProvider(
                image=image,
                resolver=None if resolver is None else resolver._real,
                sweep_every_s=sweep_every_s,
            )
        )

    @property
    def isolation(self) -> str:
        """The rung of the ladder that is in force. There is no silent lower one."""
        return self._real.isolation

    @property
    def enforced(self) -> Mapping[Limit, Enforcement]:
        return self._real.enforced

    @property
    def image_digest(self) -> str:
        """Of what its sandboxes start from; empty when it is not open."""
        return self._read(lambda: self._real.image_digest)

    def places(self) -> frozenset[str]:
        """The cgroups that its sandboxes have now; not those that wait, empty, for another."""
        return self._read(self._real.places)

    def create(self, spec: SandboxSpec, *, for_zygotes: bool = False) -> Sandbox:
        """Makes a sandbox. With `for_zygotes`, one that may start zygotes.

        Raises `SandboxRefused` when the machine cannot hold a limit or lacks a feature.
        """
        it = self._call(lambda: self._real.create(spec, for_zygotes=for_zygotes))
        return Sandbox(it, self._portal)
