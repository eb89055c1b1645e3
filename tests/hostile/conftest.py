"""A provider and a host for each case, so that what one case breaks is not another's."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tiltyard.sandbox.conformance.attack import Kept, Subject
from tiltyard.sandbox.conformance.far import FarSide
from tiltyard.sandbox.conformance.host import Host
from tiltyard.sandbox.native.image import Image, host_image
from tiltyard.sandbox.native.provider import NativeProvider


@pytest.fixture(scope="session")
def image() -> Image:
    """The host image, looked up once: that is most of what opening a provider costs."""
    return host_image()


@pytest_asyncio.fixture
async def far() -> AsyncIterator[FarSide]:
    async with FarSide() as opened:
        yield opened


@pytest_asyncio.fixture
async def provider(image: Image, far: FarSide) -> AsyncIterator[NativeProvider]:
    async with NativeProvider(image=image, resolver=far) as opened:
        yield opened


@pytest_asyncio.fixture
async def host() -> AsyncIterator[Host]:
    async with Host() as opened:
        yield opened


@pytest.fixture
def subject(provider: NativeProvider, far: FarSide) -> Subject:
    return Subject(
        name="native",
        maker=provider,
        kept=Kept(provider=provider, interpreter=provider.interpreter),
        places=provider.places,
        far=far,
    )
