"""Whether a sandbox that was kept warm may still be handed out: it died, or is deaf, or too old."""

import asyncio

from tiltyard.core.errors import SandboxError
from tiltyard.sandbox.supervised import Sandbox

CHECK_TIMEOUT_S = 1.0
LIFE_LEFT_MIN = 0.9
"""What part of its lifetime a kept one must have left; else another is made."""


async def is_fit(sandbox: Sandbox, *, checked_after_s: float) -> bool:
    """Asks it only when it has lived for longer than `checked_after_s`."""
    lived_s = sandbox.spec.lifetime_s - sandbox.time_left_s
    if not sandbox.alive or sandbox.time_left_s < LIFE_LEFT_MIN * sandbox.spec.lifetime_s:
        return False
    if lived_s < checked_after_s:
        return True
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await sandbox.ping()
    except (SandboxError, TimeoutError):
        return False
    return True
