"""A policy behind an OpenAI-compatible server: vLLM, SGLang, llama.cpp, or a hosted one.

The server is not trusted to behave: time, size, retries and concurrency are bounded. What the
model says is a reply, however bad; that the server does not serve is a `PolicyError`, which the
rollout records as a fault of the infrastructure and never as a reward.
"""

import asyncio
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from random import Random

import aiohttp
import structlog
from pydantic import SecretStr

from tiltyard.agents.completion import (
    TOKEN_FIELDS,
    complaint,
    oversized_reply,
    reply_of,
    request_body,
    turn_seed,
)
from tiltyard.agents.fenced import Message, Role, render
from tiltyard.agents.retrying import (
    ATTEMPTS_MAX,
    ATTEMPTS_UNREACHED_MAX,
    RETRY_AFTER_S_MAX,
    backoff_s,
    retry_after_s,
)
from tiltyard.core.errors import PolicyError
from tiltyard.core.trajectory import PolicyReply, Prompt

CONCURRENT_MAX = 256
"""Requests under way at once. A server batches as many as it can and queues the rest itself, so
more would only wait there, where no time limit of ours tells waiting from generating."""

CONNECT_S_MAX = 10.0
REPLY_S_MAX = 600.0
"""For a whole answer: a long one from a busy server takes minutes, none takes ten."""

RESPONSE_BYTES_MAX = 8 * 1024 * 1024
"""Of an answer's body: `TOKENS_MAX` with their ids and log-probabilities fit several times."""

TOKENS_MAX = 4096
"""Asked for at most in one answer; a module of a thousand lines is longer than tasks ask for."""

_UNREACHED_FIX = "Start the server, or correct the URL; then make these rollouts again."

_log = structlog.get_logger("tiltyard.agents")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Response:
    """What came back, as far as it was read."""

    status: int
    body: bytes
    oversized: bool
    retry_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chat:
    """What one request asks for."""

    messages: tuple[Message, ...]
    seed: int
    tokens: bool = True
    """Whether ids and log-probabilities are of use."""


class OpenAIPolicy:
    """Asks `url` for turns of `model`. Use from one event loop, and close with `aclose`."""

    def __init__(
        self,
        *,
        url: str,
        model: str,
        api_key: SecretStr | None,
        seed: int = 0,
        temperature: float = 1.0,
        reply_s_max: float = REPLY_S_MAX,
    ) -> None:
        """`url` is the server's, with or without `/v1`. A key of None sends none."""
        self.name = f"openai:{url}#{model}"
        self._model = model
        self._endpoint = endpoint(url)
        self._api_key = api_key
        self._seed = seed
        self._temperature = temperature
        self._reply_s_max = reply_s_max
        self._asks_for_tokens = True
        self._slots = asyncio.Semaphore(CONCURRENT_MAX)
        self._session: aiohttp.ClientSession | None = None
        self._reached = False
        self._closed = False
        # Spreads retries only; what is sampled is fixed by the seed in the request.
        self._rng = Random()  # noqa: S311

    async def respond(self, prompt: Prompt) -> PolicyReply:
        """One turn. Raises `PolicyError`, naming the server and the model, when there is none."""
        chat = _Chat(messages=tuple(render(prompt)), seed=turn_seed(prompt, self._seed))
        return await self._complete(chat)

    async def say(self, text: str) -> str:
        """What the model says to one message of a user's. Raises as `respond`."""
        message = Message(role=Role.USER, content=text)
        reply = await self._complete(_Chat(messages=(message,), seed=self._seed, tokens=False))
        return reply.text

    async def _complete(self, chat: _Chat) -> PolicyReply:
        async with self._slots:
            response = await self._ask(chat)
        if response.oversized:
            return oversized_reply(response.body, model=self._model)
        try:
            return reply_of(response.body, model=self._model)
        except ValueError as error:
            raise self._error(
                f"its answer cannot be read: {error}",
                fix="Check that the URL is an OpenAI-compatible chat completion server's.",
            ) from None

    async def aclose(self) -> None:
        """Close the connections. Closing twice is fine."""
        self._closed = True
        if self._session is not None:
            await self._session.close()

    async def _ask(self, chat: _Chat) -> _Response:
        failures = 0
        while True:
            asked_for_tokens = self._asks_for_tokens and chat.tokens
            try:
                response = await self._post(chat, tokens=asked_for_tokens)
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError) as error:
                failures += 1
                said = f"the connection failed: {_in_words(error)}"
                wait_s = self._wait_s(failures, None, said, fix=_UNREACHED_FIX)
            except TimeoutError:
                raise self._error(
                    f"it did not answer within {self._reply_s_max:g} s",
                    fix="See whether the server is overloaded; ask with fewer rollouts at once.",
                ) from None
            except aiohttp.ClientError as error:
                raise self._error(
                    f"it does not speak HTTP as it should: {error}", fix="Check the URL."
                ) from None
            else:
                self._reached = True
                if response.status == HTTPStatus.OK:
                    return response
                said = f"HTTP {response.status}: {self._without_key(complaint(response.body))}"
                if asked_for_tokens and _refuses_tokens(response, said):
                    self._stop_asking_for_tokens(said)
                    continue
                fix = _status_fix(response.status)
                if not _may_pass(response.status):
                    raise self._error(said, fix=fix)
                failures += 1
                wait_s = self._wait_s(failures, response.retry_after, said, fix=fix)
            _log.info("policy_retried", policy=self.name, failures=failures, wait_s=wait_s)
            await asyncio.sleep(wait_s)

    def _wait_s(self, failures: int, retry_after: str | None, said: str, *, fix: str) -> float:
        """How long to wait before the next attempt; raises when there shall be none."""
        asked_s = retry_after_s(retry_after, datetime.now(UTC))
        if failures >= (ATTEMPTS_MAX if self._reached else ATTEMPTS_UNREACHED_MAX):
            raise self._error(f"{said} ({failures} attempts)", fix=fix)
        if asked_s is None:
            return backoff_s(failures, self._rng)
        if asked_s > RETRY_AFTER_S_MAX:
            raise self._error(
                f"{said}; it asks to wait {asked_s:.0f} s",
                fix="Come back then, or ask with fewer rollouts at once.",
            )
        return asked_s

    async def _post(self, chat: _Chat, *, tokens: bool) -> _Response:
        body = request_body(
            chat.messages,
            model=self._model,
            seed=chat.seed,
            temperature=self._temperature,
            tokens_max=TOKENS_MAX,
            tokens=tokens,
        )
        headers = {"Accept-Encoding": "identity"}  # so that a small body cannot unfold to a big one
        if self._api_key is not None:
            headers["Authorization"] = f"Bearer {self._api_key.get_secret_value()}"
        async with self._opened().post(
            self._endpoint, json=body, headers=headers, allow_redirects=False
        ) as response:
            content, oversized = await _read_bounded(response)
            return _Response(
                status=response.status,
                body=content,
                oversized=oversized,
                retry_after=response.headers.get("Retry-After"),
            )

    def _opened(self) -> aiohttp.ClientSession:
        if self._closed:
            raise self._error("it is asked after the policy was closed", fix="Make a new policy.")
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONCURRENT_MAX),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(
                    total=self._reply_s_max, sock_connect=min(CONNECT_S_MAX, self._reply_s_max)
                ),
                auto_decompress=False,
            )
        return self._session

    def _stop_asking_for_tokens(self, said: str) -> None:
        if self._asks_for_tokens:
            self._asks_for_tokens = False
            # The records say so too: their replies have no tokens.
            _log.warning("policy_gives_no_tokens", policy=self.name, said=said)

    def _without_key(self, text: str) -> str:
        """Some servers repeat the key they refuse."""
        key = self._api_key.get_secret_value() if self._api_key is not None else ""
        return text.replace(key, "[key]") if key else text

    def _error(self, what: str, *, fix: str) -> PolicyError:
        return PolicyError(f"The model {self._model} at {self._endpoint}: {what}.", fix=fix)


def endpoint(url: str) -> str:
    """Where completions are asked for, from a server's URL as people write it."""
    base = url.rstrip("/")
    if base.endswith("/chat/completions"):
        return base
    return f"{base}/chat/completions" if base.endswith("/v1") else f"{base}/v1/chat/completions"


async def _read_bounded(response: aiohttp.ClientResponse) -> tuple[bytes, bool]:
    """The body up to the bound, and whether there was more; the rest is not fetched."""
    content = bytearray()
    async for chunk in response.content.iter_any():
        content += chunk
        if len(content) > RESPONSE_BYTES_MAX:
            response.close()
            return bytes(content), True
    return bytes(content), False


def _in_words(error: aiohttp.ClientError) -> str:
    """The system's reason without the library's notation for address and encryption."""
    # One about a certificate has no cause, and its own words are clear.
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientSSLError
    ):
        cause = error.os_error
        number = cause.errno or 0  # below 0 for a name that is not found
        return os.strerror(number) if number > 0 else cause.strerror or str(cause)
    return str(error) or type(error).__name__


def _may_pass(status: int) -> bool:
    return status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR


def _refuses_tokens(response: _Response, said: str) -> bool:
    refused = {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY}
    return response.status in refused and any(field in said for field in TOKEN_FIELDS)


def _status_fix(status: int) -> str:
    match status:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return "Set OPENAI_API_KEY to a key that may use this model."
        case HTTPStatus.NOT_FOUND:
            return "Check the URL and the model's name; the server lists its models at /v1/models."
        case HTTPStatus.TOO_MANY_REQUESTS:
            return "Ask with fewer rollouts at once (--concurrency), or wait until it takes more."
        case _ if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return "See the server's log: it runs, but could not answer."
        case _ if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            return "Name the URL that the server redirects to."
        case _:
            return "Correct the request or the model; the server's log may say more."
