"""The host's user ids that sandboxes have as root: a range for each, shared with no other.

What the kernel counts for each user it counts for all that have the same id. So no two living
sandboxes have a range in common, whichever process made them: a provider takes its ranges from
blocks that it has claimed, and a claim is an abstract socket with the block's name. The kernel lets
each name be bound once, and frees it with the last process that holds it, however that ends.
The launcher holds a provider's first block too, for its sandboxes end a moment after a host that
was killed. Providers in different network namespaces that have the host's ids do not see each
other's claims.
"""

import errno
import os
import socket
from collections import deque

from tiltyard.core.errors import SandboxRefused

FIRST_HOST_ID = 2_000_000_000
"""Above all that systemd hands out."""
IDS_PER_SANDBOX = 65_536
RANGES_PER_BLOCK = 256
BLOCKS = (2**32 - 2 - FIRST_HOST_ID) // (IDS_PER_SANDBOX * RANGES_PER_BLOCK)


class IdRanges:
    """The ranges of one provider."""

    def __init__(self, *, blocks: int = BLOCKS) -> None:
        self._blocks = blocks
        self._claims: list[socket.socket] = []
        self._free: deque[int] = deque()

    def claim(self) -> socket.socket:
        """Claims one more block. The socket stays the ranges' own; it may be inherited.

        Raises `SandboxRefused` when all are taken.
        """
        for turn in range(self._blocks):
            block = (os.getpid() + turn) % self._blocks
            claimed = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claimed.bind(f"\0tiltyard-ids-{block}")
            except OSError as error:
                claimed.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            self._claims.append(claimed)
            first = FIRST_HOST_ID + block * RANGES_PER_BLOCK * IDS_PER_SANDBOX
            self._free.extend(first + n * IDS_PER_SANDBOX for n in range(RANGES_PER_BLOCK))
            return claimed
        raise SandboxRefused(
            f"all {self._blocks} blocks of user ids for sandboxes are claimed on this machine.",
            fix="use fewer providers at once.",
        )

    def take(self) -> int:
        """The first id of a range that nobody has. Raises `SandboxRefused`."""
        if not self._free:
            self.claim()
        return self._free.popleft()

    def give_back(self, first_id: int) -> None:
        """Takes the range of a sandbox that is gone; it is the last to be used again."""
        if self._claims:
            self._free.append(first_id)

    def close(self) -> None:
        for claimed in self._claims:
            claimed.close()
        self._claims.clear()
        self._free.clear()
