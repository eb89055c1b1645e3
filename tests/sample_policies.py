"""Policies for tests: plain Python, no server."""

import asyncio
from collections.abc import Callable

from tiltyard.core.errors import PolicyError
from tiltyard.core.trajectory import Answer, PolicyReply, Prompt


class Replies:
    """Answers by a function of the prompt; what it returns is the module's new source."""

    name = "replies"

    def __init__(self, reply: Callable[[Prompt], str]) -> None:
        self._reply = reply
        self.prompts: list[Prompt] = []

    async def respond(self, prompt: Prompt) -> PolicyReply:
        self.prompts.append(prompt)
        await asyncio.sleep(0)
        return PolicyReply(text=self._reply(prompt), policy_version="replies-1")


class Unreachable:
    """A model server that is not there."""

    name = "unreachable"

    async def respond(self, prompt: Prompt) -> PolicyReply:
        raise PolicyError("no answer from http://127.0.0.1:1", fix="start the server.")


def whole_module(code: str, text: str) -> Answer:
    """The reply is the code; an empty one is no answer."""
    return Answer(code=text) if text.strip() else Answer(code=None, problem="the reply is empty")
