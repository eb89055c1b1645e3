"""Which version of Landlock this kernel has, asked of the kernel itself."""

import ctypes

_CREATE_RULESET = 444
"""The number of the system call, the same on every architecture."""
_ASK_VERSION = 1
TCP_VERSION = 4
"""The first that can refuse TCP."""
SCOPE_VERSION = 6
"""The first that can refuse signals and abstract sockets to the outside."""


def landlock_version() -> int:
    """0 where the kernel has none, or it is switched off."""
    return max(int(ctypes.CDLL(None).syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)), 0)
