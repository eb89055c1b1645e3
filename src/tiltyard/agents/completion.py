"""Requests and answers of an OpenAI-compatible chat completion, as data. Pure.

Only what is used is looked at. Token ids and log-probabilities are taken when the server returns
both for every token; text is never tokenised again to make up for them.
"""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

from tiltyard.agents.fenced import Message, clipped
from tiltyard.core.trajectory import PolicyReply, PolicyTokens, Prompt

TOKEN_FIELDS = {"logprobs": True, "return_token_ids": True}
"""What asks for tokens: the first is OpenAI's, the second vLLM's."""


def request_body(
    messages: Sequence[Message],
    *,
    model: str,
    seed: int,
    temperature: float,
    tokens_max: int,
    tokens: bool,
) -> dict[str, Any]:
    """The JSON body that asks for one turn; `tokens` asks for ids and log-probabilities too."""
    return {
        "model": model,
        "messages": [
            {"role": message.role.value, "content": message.content} for message in messages
        ],
        "temperature": temperature,
        "max_tokens": tokens_max,
        "seed": seed,
        **(TOKEN_FIELDS if tokens else {}),
    }


def turn_seed(prompt: Prompt, seed: int) -> int:
    """A seed for this turn of this sample of this task: 31 bits, as some servers allow no more."""
    place = f"{seed}\0{prompt.task_id}\0{prompt.sample}\0{len(prompt.earlier)}"
    digest = hashlib.sha256(place.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "little") >> 1


def reply_of(body: bytes, *, model: str) -> PolicyReply:
    """The turn that a server's answer holds; raises `ValueError` when it holds none."""
    try:
        tree = json.loads(body)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from None
    match tree:
        case {"choices": [{"message": {"content": str() | None as content}} as choice, *_]}:
            text, cut = clipped(content or "")
        case _:
            raise ValueError("it has no choices[0].message.content")
    return PolicyReply(
        text=text,
        policy_version=_version(tree, model),
        tokens=_tokens(tree, choice),
        truncated=cut or choice.get("finish_reason") == "length",
    )


def oversized_reply(head: bytes, *, model: str) -> PolicyReply:
    """The turn for an answer too large to be read: enough of its head to be seen as too long."""
    text, _ = clipped(head.decode("utf-8", "replace"))
    return PolicyReply(text=text, policy_version=model, truncated=True)


def complaint(body: bytes) -> str:
    """What a server says is wrong, shortened to one line."""
    try:
        tree = json.loads(body)
    except (ValueError, RecursionError):
        tree = None
    match tree:
        case {"error": {"message": str(said)}} | {"error": str(said)} | {"message": str(said)}:
            pass
        case {"detail": str(said)}:
            pass
        case _:
            said = body.decode("utf-8", "replace")
    return " ".join(said.split())[:300]


def _version(tree: dict[str, Any], model: str) -> str:
    """What the server says served the request, which may be newer than what was asked for."""
    match tree:
        case {"model": str(served), "system_fingerprint": str(fingerprint)}:
            return f"{served}@{fingerprint}"
        case {"model": str(served)}:
            return served
        case _:
            return model


def _tokens(tree: dict[str, Any], choice: dict[str, Any]) -> PolicyTokens | None:
    match tree, choice:
        case (
            {"prompt_token_ids": list(prompt_ids)},
            {"token_ids": list(output_ids), "logprobs": {"content": list(content)}},
        ):
            pass
        case _:
            return None
    logprobs = [_logprob(item) for item in content]
    known = [value for value in logprobs if value is not None]
    if len(known) != len(logprobs) or len(known) != len(output_ids):
        return None
    if not all(type(one) is int for one in (*prompt_ids, *output_ids)):
        return None
    return PolicyTokens(
        prompt_ids=tuple(prompt_ids), output_ids=tuple(output_ids), logprobs=tuple(known)
    )


def _logprob(item: object) -> float | None:
    match item:
        case {"logprob": int() | float() as value} if not math.isnan(value):
            return float(value)
        case _:
            return None
