"""The synchronous twin of `tiltyard.sandbox.streams.Chunks`.

Made by scripts/make_twins.py from that class: do not edit. Where its words speak of
cancelling, here that is Ctrl-C, or any exception that interrupts the caller.
"""

from typing import Self

from tiltyard.core.execution import Chunk
from tiltyard.sandbox.streams import Chunks as AsyncChunks
from tiltyard.sync.twin import Twin


class Chunks(Twin[AsyncChunks]):
    """What a program writes, piece by piece: first what is kept of it so far, then as it comes.

    Iterate over it with `for`; it ends with the program. At most 1 MiB waits: whoever reads
    more slowly than the program writes misses the oldest, and each chunk says how much is missing
    before it.
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        try:
            return self._call(self._real.__anext__)
        except StopAsyncIteration:
            raise StopIteration from None
