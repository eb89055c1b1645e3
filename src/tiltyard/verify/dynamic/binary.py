"""What kind of file a built program is, from its bytes: whether memcheck can look into it. Pure.

The file was made of a submission, so nothing in it is believed but what the kernel goes by too.
"""

import re
import struct
from enum import StrEnum

BINARY_BYTES_MAX = 32 * 1024 * 1024
_ELF_64_LITTLE = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_INTERPRETER = 3
"""`PT_INTERP`: the dynamic loader's name, which every dynamically linked program has."""
_PROGRAM_HEADER_BYTES = 56
_ASKS_VALGRIND = {
    # rol $3, %rdi; rol $13, %rdi; rol $61, %rdi; rol $51, %rdi
    62: bytes.fromhex("48c1c70348c1c70d48c1c73d48c1c733"),
    # ror x12, x12, #3; #13; #51; #61
    183: bytes.fromhex("8c0dcc938c35cc938ccdcc938cf5cc93"),
}
"""By machine, the instructions with which `valgrind.h` has a program speak to valgrind: they do
nothing without it, and no compiler writes them of its own accord."""
_REPLACES = re.compile(rb"_vg[rw][0-9]{5}Z[UZ]_")
"""How a name begins by which a program has valgrind replace or wrap a function such as `malloc`."""


class Binary(StrEnum):
    """A program's file, in words that go on from "it"."""

    DYNAMIC = "is a program that memcheck can look into"
    SCRIPT = "is run by an interpreter, and memcheck would look at that"
    FOREIGN = "is too large, missing, or for a machine that is not known here"
    STATIC = "is statically linked, and memcheck does not see what that allocates"
    ASKS_VALGRIND = "speaks to valgrind, which can take blocks out of its count"


def binary_of(content: bytes) -> Binary:
    """What a file is, by its whole content."""
    if not content.startswith(b"\x7fELF"):
        return Binary.SCRIPT
    if not content.startswith(_ELF_64_LITTLE) or len(content) < _HEADER.size:
        return Binary.FOREIGN
    _, _, machine, _, _, at, _, _, _, entry_bytes, count, _, _, _ = _HEADER.unpack_from(content)
    if machine not in _ASKS_VALGRIND or entry_bytes != _PROGRAM_HEADER_BYTES:
        return Binary.FOREIGN
    if _ASKS_VALGRIND[machine] in content or _REPLACES.search(content):
        return Binary.ASKS_VALGRIND
    starts = range(at, min(at + count * entry_bytes, len(content) - 3), entry_bytes)
    kinds = (int.from_bytes(content[start : start + 4], "little") for start in starts)
    return Binary.DYNAMIC if _INTERPRETER in kinds else Binary.STATIC
