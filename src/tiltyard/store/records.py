"""A record's payload: a trajectory's text, compressed by itself so that one bad byte costs one."""

import zstandard

from tiltyard.core.trajectory import Trajectory
from tiltyard.store.codec import decode_trajectory, encode_trajectory

RECORD_BYTES_MAX = 256 * 1024 * 1024
"""Of the uncompressed text. Streams and answers are bounded far below it by their own rooms, so
a larger record is a defect, and reading it back could exhaust the memory."""

_LEVEL = 3
"""On an 8 KB record: 0.05 to 0.1 ms; level 6 takes a third longer for 2 percent."""


def pack(trajectory: Trajectory) -> bytes:
    """The payload to frame. Raises `ValueError` for a trajectory that could not be read back."""
    text = encode_trajectory(trajectory)
    if len(text) > RECORD_BYTES_MAX:
        raise ValueError(f"its record has {len(text)} bytes, {RECORD_BYTES_MAX} are allowed")
    # A context for each call, because one must not be used by two threads at once; 15 us.
    return zstandard.ZstdCompressor(level=_LEVEL).compress(text)


def unpack(payload: bytes) -> Trajectory:
    """The trajectory that `pack` was given. Raises `ValueError` for anything else."""
    try:
        size = zstandard.frame_content_size(payload)
        if not 0 <= size <= RECORD_BYTES_MAX:
            raise ValueError(f"a record of {size} bytes is not one that was written here")
        text = zstandard.ZstdDecompressor().decompress(payload)
    except zstandard.ZstdError as error:
        raise ValueError(f"the record cannot be decompressed: {error}") from None
    return decode_trajectory(text)
