"""A fresh provider for each test, so that what a test leaves behind is found by its own closing."""

import textwrap
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from sandbox.zygote_runs import PROGRAM
from tiltyard.core.execution import MIB, ExecResult, Limit, Limits, SandboxSpec
from tiltyard.sandbox.native.image import Image, host_image
from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.sandbox.supervised import Sandbox
from tiltyard.sandbox.zygotes import ZygoteCells

RunPython = Callable[..., Awaitable[ExecResult]]


@pytest.fixture(scope="session")
def image() -> Image:
    """The host image, looked up once: that is most of what opening a provider costs."""
    return host_image()


@pytest.fixture
def limits() -> Limits:
    """Small ones, so that a test that reaches for them is quick; a test module may have its own."""
    return Limits(memory_bytes=128 * MIB, pids=32, disk_bytes=8 * MIB, inodes=1024, open_files=64)


@pytest.fixture
def spec(limits: Limits) -> SandboxSpec:
    """As an ordinary user without a delegated cgroup nothing holds a share of the CPU, or memory of
    all processes together."""
    return SandboxSpec(limits=limits, allow_unenforced=frozenset({Limit.CPU, Limit.MEMORY}))


@pytest_asyncio.fixture
async def provider(image: Image) -> AsyncIterator[NativeProvider]:
    async with NativeProvider(image=image) as opened:
        yield opened


@pytest_asyncio.fixture
async def sandbox(provider: NativeProvider, spec: SandboxSpec) -> AsyncIterator[Sandbox]:
    made = await provider.create(spec)
    yield made
    await made.close()


@pytest_asyncio.fixture
async def cells(provider: NativeProvider, spec: SandboxSpec) -> AsyncIterator[ZygoteCells]:
    """One cell of kept interpreters that run what they are sent."""
    async with ZygoteCells(
        provider, interpreter=provider.interpreter, program=PROGRAM, spec=spec, cells_max=1
    ) as opened:
        yield opened


@pytest.fixture
def python(sandbox: Sandbox) -> RunPython:
    """Runs Python source in the sandbox."""

    async def run(source: str, **options: Any) -> ExecResult:
        argv = ["python3", "-I", "-S", "-c", textwrap.dedent(source)]
        return await sandbox.run(argv, **{"timeout_s": 20.0, **options})

    return run
