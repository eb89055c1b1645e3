"""Short programs, and sandboxes that have something of one that has ended."""

from collections.abc import Awaitable, Callable

from tiltyard.core.execution import ExecResult, SandboxSpec
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox


async def python(sandbox: Sandbox, source: str) -> ExecResult:
    """Runs Python source that must end well."""
    done = await sandbox.run(["python3", "-I", "-S", "-c", source], timeout_s=60)
    assert done.ok, done.stderr.text
    return done


async def told(sandbox: Sandbox, source: str) -> str:
    """What it prints."""
    return (await python(sandbox, source)).stdout.text


async def successor(
    provider: NativeProvider, spec: SandboxSpec, has_it: Callable[[Sandbox], Awaitable[bool]]
) -> Sandbox:
    """The first new sandbox that has it; the test's own timeout bounds it."""
    while True:
        sandbox = await provider.create(spec)
        if await has_it(sandbox):
            return sandbox
        await sandbox.close()
