"""The composition root: the only room that knows which adapters there really are.

`open_yard` puts together what rollouts need on this machine. Everything below takes what it needs
as an argument; everything above asks here.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from tiltyard.agents import parse_judge
from tiltyard.core.errors import UsageError
from tiltyard.core.execution import MIB, Limit, Limits, SandboxSpec
from tiltyard.sandbox.capabilities import CapabilityReport
from tiltyard.sandbox.conformance.attack import Kept, Subject
from tiltyard.sandbox.conformance.far import FarSide
from tiltyard.sandbox.native.cgroups import start_time_of, sweep
from tiltyard.sandbox.native.image import Image
from tiltyard.sandbox.native.probe import probe
from tiltyard.sandbox.native.provider import NativeProvider, usable_hierarchies
from tiltyard.sandbox.pool import Pool, Provider
from tiltyard.verify.judge.rubric import Judge
from tiltyard.verify.verifier import Verifier

__all__ = [
    "AGENT_SPEC",
    "ALLOWED_UNENFORCED",
    "PROVIDERS",
    "VERIFIER_SPEC",
    "Image",
    "NativeProvider",
    "Yard",
    "open_judge",
    "open_provider",
    "open_subject",
    "open_verifier",
    "open_yard",
    "probe_machine",
    "sweep_leftovers",
]

# A share of the CPU is a matter of fairness between sandboxes, not of safety; an ordinary user
# without a delegated cgroup cannot hold it, and should not be turned away for that.
# So is what many processes hold of memory together: each of them is bounded all the same, and the
# commands say what is not held.
ALLOWED_UNENFORCED = frozenset({Limit.CPU, Limit.MEMORY})

AGENT_SPEC = SandboxSpec(allow_unenforced=ALLOWED_UNENFORCED)
"""What an agent's own sandbox is made of, unless a caller asks for something else."""

VERIFIER_SPEC = SandboxSpec(
    # The disk of a run comes out of its cell's memory, which must hold both.
    limits=Limits(memory_bytes=512 * MIB, disk_bytes=128 * MIB, pids=64),
    allow_unenforced=ALLOWED_UNENFORCED,
)
"""What candidates and tests run under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yard:
    """Open sandboxes and a verifier on this machine."""

    provider: NativeProvider
    pool: Pool
    verifier: Verifier
    spec: SandboxSpec = AGENT_SPEC


@asynccontextmanager
async def open_yard(
    *,
    sandboxes: int = 64,
    warm: int = 4,
    verifications: int = 3,
    judge: Judge | None = None,
    cache_dir: Path | None = None,
) -> AsyncIterator[Yard]:
    """Opens everything, and closes it with the block, whatever happens in it.

    `sandboxes` bounds those in use at once, `warm` is how many are kept ready at least, and
    `verifications` bounds how many submissions are judged at once. `judge` is asked where a task
    has a rubric; None asks nobody. `cache_dir` is as the `Verifier`'s. Raises `SandboxRefused` with
    the failing call and the fix.
    """
    async with (
        NativeProvider() as provider,
        Pool(provider, in_use_max=sandboxes, warm=warm) as pool,
        Verifier(
            provider,
            interpreter=provider.interpreter,
            spec=VERIFIER_SPEC,
            cells_max=verifications,
            image=provider.image_digest,
            judge=judge,
            cache_dir=cache_dir,
        ) as verifier,
    ):
        yield Yard(provider=provider, pool=pool, verifier=verifier)


@asynccontextmanager
async def open_verifier(
    *, verifications: int = 2, judge: Judge | None = None, cache_dir: Path | None = None
) -> AsyncIterator[Verifier]:
    """Only what judges submissions, without a pool. Raises `SandboxRefused` as `open_yard` does."""
    async with (
        NativeProvider() as provider,
        Verifier(
            provider,
            interpreter=provider.interpreter,
            spec=VERIFIER_SPEC,
            cells_max=verifications,
            image=provider.image_digest,
            judge=judge,
            cache_dir=cache_dir,
        ) as verifier,
    ):
        yield verifier


@asynccontextmanager
async def open_judge(name: str | None, *, api_key: SecretStr | None) -> AsyncIterator[Judge | None]:
    """The model that is asked where a task has a rubric; None for nobody.

    Raises `UsageError` for a name that is not `openai:URL#MODEL`.
    """
    if name is None:
        yield None
        return
    model = parse_judge(name, api_key=api_key)
    try:
        yield Judge(model.say, name=model.name)
    finally:
        await model.aclose()


async def probe_machine() -> CapabilityReport:
    """What the native provider can do here, found by trying. Never raises for what is missing."""
    return await probe()


PROVIDERS = ("native",)
"""The names under which `tiltyard conformance` knows the providers."""


@asynccontextmanager
async def open_subject(name: str) -> AsyncIterator[Subject]:
    """A provider for the hostile suite. Raises `UsageError` for a name that there is not."""
    if name not in PROVIDERS:
        raise UsageError(f"no provider is named {name!r}.", fix=f"use {', '.join(PROVIDERS)}.")
    async with FarSide() as far, NativeProvider(resolver=far) as provider:
        yield Subject(
            name=name,
            maker=provider,
            kept=Kept(provider=provider, interpreter=provider.interpreter),
            places=provider.places,
            far=far,
        )


@asynccontextmanager
async def open_provider() -> AsyncIterator[Provider]:
    """Only what makes sandboxes. Raises `SandboxRefused` with the failing call and the fix."""
    async with NativeProvider() as provider:
        yield provider


def sweep_leftovers() -> int:
    """Removes what processes left that no longer live, and tells how many such there were."""
    return sweep(usable_hierarchies(), start_time_of=start_time_of)
