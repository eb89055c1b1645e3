"""A real HTTP server on the loopback interface, with whatever behaviour a test gives it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ModelServer:
    """Answers each request as `handle` says, and keeps what it was sent."""

    def __init__(self) -> None:
        self.handle: Handle | None = None
        self.requests: list[dict[str, object]] = []
        self.authorizations: list[str | None] = []
        self.released = asyncio.Event()
        """Set when the test is over: a handler that never answers waits for it."""
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(await request.json())
        self.authorizations.append(request.headers.get("Authorization"))
        assert self.handle is not None
        return await self.handle(request)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    model = ModelServer()
    application = web.Application(client_max_size=64 * 1024 * 1024)
    application.router.add_post("/v1/chat/completions", model.answer)
    async with TestServer(application) as listening:
        model.url = str(listening.make_url("/v1"))
        yield model
        model.released.set()
