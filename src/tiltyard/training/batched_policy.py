"""Many rollouts, one forward pass: the built-in policy behind the rollout room's `Policy`.

Rollouts ask one by one; the learner is fast only when asked for all at once. A batch is sent when
every live rollout waits for an answer, and the trainer says how many are live. It is never sent
by a timer, and it is sorted by task, sample and turn before it is sent: so what a rollout is
answered depends on the seed and never on how fast its neighbours were.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tiltyard.core.errors import PolicyError, TiltyardError, UsageError
from tiltyard.core.trajectory import PolicyReply, Prompt
from tiltyard.training.answer import render_prompt
from tiltyard.training.exchange import Question, Reply

POLICY_NAME: Final = "built-in"

Act = Callable[[Sequence[Question]], Awaitable[list[Reply]]]
"""`LearnerClient.act`, or anything that answers like it."""


@asynccontextmanager
async def batched_policy(act: Act, *, label: str) -> AsyncIterator["BatchedPolicy"]:
    """A policy for one batch of rollouts.

    `label` goes into the key of every answer's randomness: the same task, sample and turn under
    another label is answered independently.
    """
    async with asyncio.TaskGroup() as tasks:
        yield BatchedPolicy(act, label=label, tasks=tasks)


class BatchedPolicy:
    """Gathers the questions of live rollouts. Made by `batched_policy`."""

    def __init__(self, act: Act, *, label: str, tasks: asyncio.TaskGroup) -> None:
        self._act = act
        self._label = label
        self._tasks = tasks
        self._live = 0
        self._waiting: list[tuple[Prompt, asyncio.Future[Reply]]] = []

    @property
    def name(self) -> str:
        return POLICY_NAME

    @property
    def live(self) -> int:
        """Rollouts that are announced and have not left."""
        return self._live

    def expect(self, rollouts: int) -> None:
        """Announce that many more live rollouts. All of them must be able to wait at once."""
        self._live += rollouts

    def leave(self) -> None:
        """One live rollout has ended, however it did. It must be said for every announced one."""
        if self._live == 0:
            raise UsageError("More rollouts left than were announced to the batched policy.")
        self._live -= 1
        self._send_when_all_wait()

    async def respond(self, prompt: Prompt) -> PolicyReply:
        """One turn. Raises PolicyError when the learner cannot answer."""
        if self._live == 0:
            raise UsageError("A rollout asks the batched policy without having been announced.")
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        entry = (prompt, answer)
        self._waiting.append(entry)
        self._send_when_all_wait()
        try:
            reply = await answer
        finally:
            # Cancelled before its batch was sent: whoever is left must not be answered for it.
            if entry in self._waiting:
                self._waiting.remove(entry)
        return PolicyReply(
            text=reply.text,
            policy_version=reply.policy_version,
            tokens=reply.tokens,
            truncated=reply.truncated,
        )

    def _send_when_all_wait(self) -> None:
        if self._waiting and len(self._waiting) >= self._live:
            batch = sorted(self._waiting, key=_order)
            self._waiting = []
            # A task of its own: in the last caller's, cancelling that one would stop the others.
            self._tasks.create_task(self._answer(batch))

    async def _answer(self, batch: list[tuple[Prompt, asyncio.Future[Reply]]]) -> None:
        questions = [
            Question(
                key=f"{self._label}/{prompt.task_id}/{prompt.sample}/{len(prompt.earlier)}",
                text=render_prompt(prompt.instruction, prompt.code),
            )
            for prompt, _ in batch
        ]
        try:
            replies = await self._act(questions)
        except TiltyardError as error:
            fault = error if isinstance(error, PolicyError) else PolicyError(str(error))
            for _, answer in batch:
                if not answer.done():
                    answer.set_exception(fault)
            return
        for (_, answer), reply in zip(batch, replies, strict=True):
            if not answer.done():
                answer.set_result(reply)


def _order(entry: tuple[Prompt, asyncio.Future[Reply]]) -> tuple[str, int, int]:
    prompt = entry[0]
    return prompt.task_id, prompt.sample, len(prompt.earlier)
