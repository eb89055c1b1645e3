"""One open verifier for all tests of a module: its cells are used again and again, as in real use,
so that what one submission leaves behind would show in the next one's verdict."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tiltyard.sandbox.native.provider import NativeProvider
from tiltyard.verify.verifier import Verifier
from verify.tasks import SPEC


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[NativeProvider]:
    async with NativeProvider() as opened:
        yield opened


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def verifier(provider: NativeProvider) -> AsyncIterator[Verifier]:
    async with Verifier(
        provider, interpreter=provider.interpreter, spec=SPEC, cells_max=2
    ) as opened:
        yield opened


@pytest.fixture
def billed(by_cgroup: bool) -> None:
    """For tests of what is counted from outside."""
    if not by_cgroup:
        pytest.skip("no cgroup counts here what an ordinary user's sandboxes use")
