"""What tiltyard-launcher is asked for when a sandbox is to be made: `create` in its source."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from tiltyard.sandbox.native.netns import NetworkOrder
from tiltyard.sandbox.protocol import text, texts

_REQUEST_CREATE = 2
_FOR_ZYGOTES, _WRITABLE = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateOrder:
    """All that the launcher needs for one sandbox."""

    id: str
    image: int
    disk_bytes: int
    inodes: int
    for_zygotes: bool
    snapshot: int = 0
    """Number of the snapshot to stand on; 0: none."""
    writable: bool = False
    lifetime_s: int
    first_id: int
    """First host id of the sandbox's range; of no effect for an ordinary user."""
    network: NetworkOrder = field(default_factory=NetworkOrder)
    oom_file: str
    """Where the kernel will count its out-of-memory kills; empty when nowhere."""
    pids_file: str = ""
    memory_file: str = ""
    """What is in its cgroups now; empty when nowhere."""
    residue_bytes: int = 0
    """Its cgroups are kept when no more than this is charged to them at its end; 0: never."""
    there: bool = False
    """They were kept from another sandbox, with the same limits."""
    directories: Sequence[str]
    grouped: Sequence[str] = ()
    """Those of them below which each execution gets one of its own."""
    unused: Sequence[str] = ()
    """Directories that were kept and that nobody will use again."""
    settings: Sequence[tuple[str, str]] = ()

    def encode(self) -> bytes:
        paths = [path for path, _ in self.settings]
        values = [value for _, value in self.settings]
        return b"".join(
            (
                struct.pack("<I", _REQUEST_CREATE),
                text(self.id),
                struct.pack(
                    "<IIQQIIIIQ",
                    self.image,
                    self.snapshot,
                    self.disk_bytes,
                    self.inodes,
                    _FOR_ZYGOTES * self.for_zygotes | _WRITABLE * self.writable,
                    self.first_id,
                    self.lifetime_s,
                    self.there,
                    self.residue_bytes,
                ),
                text(self.oom_file),
                text(self.pids_file),
                text(self.memory_file),
                texts(self.directories),
                texts(self.grouped),
                texts(self.unused),
                texts(paths),
                texts(values),
                self.network.encode(),
            )
        )
