"""A served model, against real servers on the loopback interface that behave well and badly."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol

import pytest
from aiohttp import web
from pydantic import SecretStr

from tiltyard.agents import OpenAIPolicy, read_fenced
from tiltyard.agents.openai import CONCURRENT_MAX, RESPONSE_BYTES_MAX
from tiltyard.core.errors import PolicyError
from tiltyard.core.ids import TaskId
from tiltyard.core.trajectory import PolicyReply, PolicyTokens, Prompt, Step

Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]
PROMPT = Prompt(task_id=TaskId("repair/1"), instruction="Repair `f`.", code="def f(): ...\n")
AT_ONCE = {"Retry-After": "0"}


class Server(Protocol):
    handle: Handle | None
    requests: list[dict[str, Any]]
    authorizations: list[str | None]
    released: asyncio.Event
    url: str


@pytest.fixture
async def policy(server: Server) -> AsyncIterator[OpenAIPolicy]:
    made = OpenAIPolicy(url=server.url, model="m", api_key=SecretStr("sk-secret"), seed=5)
    yield made
    await made.aclose()
    gc.collect()  # an unclosed connection is reported when it is collected


def completion(text: str | None, **fields: Any) -> web.Response:
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return web.json_response(
        {"model": "m-1", "choices": [{**choice, **fields.pop("choice", {})}], **fields}
    )


def always(make: Callable[[], web.Response]) -> Handle:
    async def handle(_: web.Request) -> web.StreamResponse:
        return make()

    return handle


def first(*makes: Callable[[], web.Response]) -> Handle:
    """Each answer once, in order; the last one from then on."""
    left = list(makes)

    async def handle(_: web.Request) -> web.StreamResponse:
        return (left.pop(0) if len(left) > 1 else left[0])()

    return handle


def unavailable(status: int = 503, **headers: str) -> web.Response:
    return web.json_response(
        {"error": {"message": "busy"}}, status=status, headers=headers or AT_ONCE
    )


async def test_a_server_that_is_asked_too_much_is_not_said_to_be_away(
    server: Server, policy: OpenAIPolicy
) -> None:
    server.handle = always(lambda: unavailable(429))
    with pytest.raises(PolicyError, match=r"HTTP 429: busy.*Ask with fewer rollouts at once"):
        await policy.respond(PROMPT)


async def test_a_turn(server: Server, policy: OpenAIPolicy) -> None:
    server.handle = always(lambda: completion("```\nx = 1\n```", system_fingerprint="fp"))
    reply = await policy.respond(PROMPT)
    assert reply == PolicyReply(text="```\nx = 1\n```", policy_version="m-1@fp")
    assert server.authorizations == ["Bearer sk-secret"]
    (request,) = server.requests
    assert (request["model"], request["temperature"]) == ("m", 1.0)
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert "def f(): ..." in request["messages"][1]["content"]


async def test_without_a_key_none_is_sent(server: Server) -> None:
    server.handle = always(lambda: completion("hello"))
    policy = OpenAIPolicy(url=server.url, model="m", api_key=None)
    await policy.respond(PROMPT)
    await policy.aclose()
    assert server.authorizations == [None]


async def test_the_seed_is_fixed_by_run_task_sample_and_turn(
    server: Server, policy: OpenAIPolicy
) -> None:
    server.handle = always(lambda: completion("hello"))
    turned = (Step(reply=PolicyReply(text="", policy_version=""), code=None),)
    other = OpenAIPolicy(url=server.url, model="m", api_key=None, seed=6)
    for asked, prompt in (
        (policy, PROMPT),
        (policy, PROMPT),
        (other, PROMPT),
        (policy, Prompt(task_id=TaskId("repair/2"), instruction="", code="")),
        (policy, Prompt(task_id=TaskId("repair/1"), instruction="", code="", sample=1)),
        (policy, Prompt(task_id=TaskId("repair/1"), instruction="", code="", earlier=turned)),
    ):
        await asked.respond(prompt)
    await other.aclose()
    seeds = [request["seed"] for request in server.requests]
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 5
    assert all(0 <= seed < 2**31 for seed in seeds)


async def test_tokens_are_taken_as_the_server_gives_them(
    server: Server, policy: OpenAIPolicy
) -> None:
    logprobs = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": 0}]}
    choice = {"token_ids": [7, 8], "logprobs": logprobs}
    server.handle = always(lambda: completion("ab", choice=choice, prompt_token_ids=[1, 2, 3]))
    reply = await policy.respond(PROMPT)
    assert reply.tokens == PolicyTokens(
        prompt_ids=(1, 2, 3), output_ids=(7, 8), logprobs=(-0.5, 0.0)
    )


@pytest.mark.parametrize(
    "choice",
    [
        {"token_ids": [7]},
        {"token_ids": [7, 8], "logprobs": {"content": [{"logprob": -0.5}]}},
        {"token_ids": [7], "logprobs": {"content": [{"logprob": None}]}},
        {"token_ids": ["7"], "logprobs": {"content": [{"logprob": -0.5}]}},
        {"token_ids": [7], "logprobs": {"content": [-0.5]}},
    ],
)
async def test_tokens_that_do_not_match_are_not_taken(
    server: Server, policy: OpenAIPolicy, choice: dict[str, Any]
) -> None:
    server.handle = always(lambda: completion("a", choice=choice, prompt_token_ids=[1]))
    reply = await policy.respond(PROMPT)
    assert (reply.text, reply.tokens) == ("a", None)


async def test_a_server_that_knows_no_tokens_is_asked_without(
    server: Server, policy: OpenAIPolicy
) -> None:
    refusal = {"error": {"message": "Unrecognized request argument supplied: return_token_ids"}}
    server.handle = first(
        lambda: web.json_response(refusal, status=400), lambda: completion("hello")
    )
    replies = [await policy.respond(PROMPT) for _ in range(2)]
    assert [reply.text for reply in replies] == ["hello", "hello"]
    assert ["return_token_ids" in request for request in server.requests] == [True, False, False]


async def test_a_cut_answer_and_an_empty_one_are_the_models(
    server: Server, policy: OpenAIPolicy
) -> None:
    server.handle = first(
        lambda: completion("half", choice={"finish_reason": "length"}), lambda: completion(None)
    )
    assert (await policy.respond(PROMPT)).truncated
    assert (await policy.respond(PROMPT)).text == ""


async def test_text_that_is_not_unicode_is_the_models(server: Server, policy: OpenAIPolicy) -> None:
    body = b'{"choices": [{"message": {"content": "```\\n\\ud800\\n```"}}]}'
    server.handle = always(lambda: web.Response(body=body))
    reply = await policy.respond(PROMPT)
    assert "not valid Unicode" in read_fenced("", reply.text).problem


@pytest.mark.slow
async def test_an_answer_of_100_mb_is_not_fetched(server: Server, policy: OpenAIPolicy) -> None:
    sent = 0

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"choices": [{"message": {"content": "')
        try:
            while sent < 100_000_000:
                await response.write(b"x" * 100_000)
                sent += 100_000
        finally:
            server.released.set()
        return response

    server.handle = endless
    reply = await policy.respond(PROMPT)
    await asyncio.wait_for(server.released.wait(), 10)
    assert RESPONSE_BYTES_MAX <= sent < 100_000_000
    assert reply.truncated
    assert "longer than" in read_fenced("", reply.text).problem
    assert len(reply.text) < 1_100_000


@pytest.mark.parametrize("make", [unavailable, lambda: unavailable(429), lambda: unavailable(500)])
async def test_what_passes_is_tried_again(
    server: Server, policy: OpenAIPolicy, make: Callable[[], web.Response]
) -> None:
    server.handle = first(make, make, lambda: completion("hello"))
    assert (await policy.respond(PROMPT)).text == "hello"
    assert len(server.requests) == 3


async def test_trying_again_has_an_end(server: Server, policy: OpenAIPolicy) -> None:
    server.handle = always(unavailable)
    said = r"model m at http://.*HTTP 503: busy \(6 attempts\).*See the server's log"
    with pytest.raises(PolicyError, match=said):
        await policy.respond(PROMPT)
    assert len(server.requests) == 6


async def test_a_server_that_asks_for_a_long_wait_is_not_waited_for(
    server: Server, policy: OpenAIPolicy
) -> None:
    server.handle = always(lambda: unavailable(429, **{"Retry-After": "86400"}))
    with pytest.raises(PolicyError, match="asks to wait 86400 s"):
        await policy.respond(PROMPT)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "fix"),
    [
        (400, "Correct the request"),
        (401, "Set OPENAI_API_KEY"),
        (404, "Check the URL and the model's name"),
        (307, "Name the URL that the server redirects to"),
    ],
)
async def test_what_does_not_pass_is_not_tried_again(
    server: Server, policy: OpenAIPolicy, status: int, fix: str
) -> None:
    said = {"error": {"message": "no such model,\nkey sk-secret"}}
    headers = {"Location": "/elsewhere"}
    server.handle = always(lambda: web.json_response(said, status=status, headers=headers))
    with pytest.raises(PolicyError, match=f"HTTP {status}: no such model, key ") as caught:
        await policy.respond(PROMPT)
    assert len(server.requests) == 1
    assert fix in str(caught.value)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"\x00\xff\xfe garbage", "not JSON"),
        (b"<html>hello</html>", "not JSON"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b"[]", r"no choices\[0\]"),
        (b'{"choices": []}', r"no choices\[0\]"),
        (b'{"choices": [{"text": "old"}]}', r"no choices\[0\]"),
        (b'{"choices": [{"message": {"content": 5}}]}', r"no choices\[0\]"),
    ],
)
async def test_garbage_is_a_fault_of_the_server(
    server: Server, policy: OpenAIPolicy, body: bytes, message: str
) -> None:
    server.handle = always(lambda: web.Response(body=body))
    with pytest.raises(PolicyError, match=message) as caught:
        await policy.respond(PROMPT)
    assert server.url in str(caught.value)
    assert len(server.requests) == 1


async def test_a_server_that_speaks_something_else(policy: OpenAIPolicy) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"\x00\xff\x00 not HTTP at all\r\n\r\n")
        writer.close()

    listening = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        other = OpenAIPolicy(url=f"http://127.0.0.1:{port}", model="m", api_key=None)
        with pytest.raises(PolicyError, match="does not speak HTTP"):
            await other.respond(PROMPT)
        await other.aclose()


@pytest.mark.slow
async def test_an_unreachable_server_is_soon_given_up() -> None:
    listening = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    listening.close()
    await listening.wait_closed()
    policy = OpenAIPolicy(url=f"http://127.0.0.1:{port}", model="m", api_key=None)
    async with asyncio.timeout(5):
        with pytest.raises(
            PolicyError,
            match=rf"127.0.0.1:{port}.*: Connection refused \(2 attempts\).*Start the server",
        ):
            await policy.respond(PROMPT)
    await policy.aclose()


@pytest.mark.slow
async def test_a_dropped_connection_is_tried_again(server: Server, policy: OpenAIPolicy) -> None:
    drops = 0

    async def drop(request: web.Request) -> web.StreamResponse:
        nonlocal drops
        if len(server.requests) in {2, 3}:
            drops += 1
            response = web.StreamResponse(headers={"Content-Length": "100"})
            if drops == 2:
                await response.prepare(request)
                await response.write(b'{"choices"')
            assert request.transport is not None
            request.transport.close()
            return response
        return completion("hello")

    server.handle = drop
    for _ in range(2):
        assert (await policy.respond(PROMPT)).text == "hello"
    assert drops == 2


async def test_a_server_that_never_answers(server: Server) -> None:
    async def silence(_: web.Request) -> web.StreamResponse:
        await server.released.wait()
        return web.Response()

    server.handle = silence
    policy = OpenAIPolicy(url=server.url, model="m", api_key=None, reply_s_max=0.1)
    with pytest.raises(PolicyError, match=r"did not answer within 0\.1 s"):
        await policy.respond(PROMPT)
    await policy.aclose()
    assert len(server.requests) == 1


@pytest.mark.slow
async def test_requests_at_once_are_bounded(server: Server, policy: OpenAIPolicy) -> None:
    full = asyncio.Event()
    present = most = 0

    async def hold(_: web.Request) -> web.StreamResponse:
        nonlocal present, most
        present += 1
        most = max(most, present)
        if present == CONCURRENT_MAX:
            full.set()
        await full.wait()
        present -= 1
        return completion("hello")

    server.handle = hold
    async with asyncio.TaskGroup() as group:
        for _ in range(CONCURRENT_MAX + 50):
            group.create_task(policy.respond(PROMPT))
    assert most == CONCURRENT_MAX
    assert len(server.requests) == CONCURRENT_MAX + 50


async def test_closing_is_final_and_can_be_repeated(server: Server, policy: OpenAIPolicy) -> None:
    server.handle = always(lambda: completion("hello"))
    await policy.respond(PROMPT)
    await policy.aclose()
    await policy.aclose()
    with pytest.raises(PolicyError, match="after the policy was closed"):
        await policy.respond(PROMPT)


async def test_one_message_can_be_sent_without_a_task(server: Server, policy: OpenAIPolicy) -> None:
    server.handle = always(lambda: completion("an opinion"))
    assert await policy.say("what of this?") == "an opinion"
    (sent,) = server.requests
    assert sent["messages"] == [{"role": "user", "content": "what of this?"}]
    assert "logprobs" not in sent
