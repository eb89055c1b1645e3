"""The learner's process: it answers, it fails in the open, and it never outlives its client."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tiltyard.core.errors import PolicyError, StoreError, UsageError
from tiltyard.training.checkpoint import load_checkpoint
from tiltyard.training.exchange import FRAME_BYTES_MAX, LearnedRollout, Question
from tiltyard.training.learner_client import (
    LearnerClient,
    LearnerDied,
    learner_process,
    running_process,
)
from tiltyard.training.recipe import Recipe

pytestmark = [pytest.mark.train, pytest.mark.slow]

SERVING = [sys.executable, "-m", "tiltyard.training.learner_process"]
QUESTIONS = [
    Question(key=str(i), text="Return x.\n1|def f(x):\n2|    return 0\n") for i in range(6)
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(recipe: Recipe, cache: Path) -> AsyncIterator[LearnerClient]:
    async with learner_process(recipe, cache_dir=cache) as started:
        yield started


def ended(process_id: int, within_s: float) -> bool:
    """Whether a process that may not be our child ends in time."""
    try:
        handle = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], within_s)[0])
    finally:
        os.close(handle)


def script(body: str) -> list[str]:
    return [sys.executable, "-c", f"import os, sys, time\n{body}"]


@pytest.mark.asyncio(loop_scope="module")
async def test_it_acts_learns_keeps_and_saves(client: LearnerClient, tmp_path: Path) -> None:
    assert client.started is not None
    assert client.started.parameters > 1_000
    replies = await client.act(QUESTIONS)
    version = replies[0].policy_version
    assert await client.note_score(0.5)
    groups = [
        [
            LearnedRollout(turns=(reply.tokens,), reward=float(i % 2))
            for i, reply in enumerate(replies)
        ]
    ]
    metrics = await client.update(groups)
    assert (metrics.update, metrics.groups_used) == (1, 1)
    assert (await client.act(QUESTIONS[:1]))[0].policy_version != version
    assert not await client.note_score(0.4)
    assert await client.use_best() == version
    assert await client.act(QUESTIONS) == replies
    await client.save(tmp_path / "one.policy")
    assert load_checkpoint(tmp_path / "one.policy").notes["policy_version"] == version


@pytest.mark.asyncio(loop_scope="module")
async def test_its_errors_keep_their_kind_and_do_not_end_it(
    client: LearnerClient, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match="Free space"):
        await client.save(tmp_path / "file" / "one.policy")
    with pytest.raises(UsageError, match="exceeds"):
        await client.act([Question(key="a", text="+ " * 9_000)])
    assert len(await client.act(QUESTIONS)) == 6


@pytest.mark.asyncio(loop_scope="module")
async def test_a_cancelled_request_does_not_confuse_the_next(client: LearnerClient) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await client.act(QUESTIONS)
    assert len(await client.act(QUESTIONS[:2])) == 2


@pytest.mark.asyncio(loop_scope="module")
async def test_requests_are_answered_in_order_beside_each_other(client: LearnerClient) -> None:
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(client.act(QUESTIONS[:n])) for n in (3, 1, 2)]
    assert [len(task.result()) for task in asked] == [3, 1, 2]


async def test_its_death_reaches_every_waiting_and_later_request() -> None:
    async with running_process(script("time.sleep(600)")) as client:
        waiting = asyncio.ensure_future(client.act(QUESTIONS))
        await asyncio.sleep(0)
        os.kill(client.process_id, signal.SIGKILL)
        with pytest.raises(LearnerDied, match="ended with code -9"):
            await waiting
        with pytest.raises(PolicyError):
            await client.act(QUESTIONS)


async def test_closing_ends_it_and_closing_again_does_nothing() -> None:
    async with running_process(SERVING) as client:
        with pytest.raises(UsageError, match="before it was started"):
            await client.act(QUESTIONS)
        await client.close()
        assert ended(client.process_id, within_s=0)
        await client.close()
        with pytest.raises(LearnerDied, match="closed"):
            await client.act(QUESTIONS)


async def test_a_process_that_ignores_the_request_to_close_is_killed() -> None:
    stubborn = script("time.sleep(600)")
    async with running_process(stubborn, close_timeout_s=0.2) as client:
        process_id = client.process_id
    assert ended(process_id, within_s=0)


@pytest.mark.parametrize(
    "garbage",
    [
        "b'\\xff' * 100",
        f"({FRAME_BYTES_MAX} + 1).to_bytes(4, 'big')",
        "(5).to_bytes(4, 'big') + b'hello'",
        "(2).to_bytes(4, 'big') + b'[]'",
        "(12).to_bytes(4, 'big') + b'{\"number\":1}'",
        "b'\\x00\\x00'",
        "b''",
    ],
)
async def test_garbage_from_the_process_is_its_death(garbage: str) -> None:
    # It waits for the request, so that the garbage comes as the answer to it.
    body = f"os.read(0, 4)\nsys.stderr.write('oh dear')\nsys.stderr.flush()\nos.write(1, {garbage})"
    async with running_process(script(body)) as client:
        with pytest.raises(LearnerDied, match=r"garbage|ended with code 0"):
            await client.act(QUESTIONS)
        with pytest.raises(LearnerDied):
            await client.act(QUESTIONS)


async def test_what_a_dying_process_said_is_in_the_error() -> None:
    body = "sys.stderr.write('x' * 300_000 + 'no memory left'); sys.stderr.flush(); os._exit(3)"
    async with running_process(script(body)) as client:
        with pytest.raises(LearnerDied, match="no memory left") as caught:
            await client.act(QUESTIONS)
    assert len(str(caught.value)) < 2_000


async def test_garbage_to_the_process_ends_it_with_a_reason() -> None:
    for garbage in (b"\xff" * 64, b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x05hello"):
        done = await asyncio.to_thread(
            subprocess.run, SERVING, input=garbage, capture_output=True, timeout=60, check=False
        )
        assert done.returncode == 1
        assert b"frame" in done.stderr
        assert done.stdout == b""


def test_it_ends_with_its_parent() -> None:
    # The parent is killed while the learner waits for its first request.
    program = f"""
import asyncio
from tiltyard.training.learner_client import running_process

async def main():
    async with running_process({SERVING!r}) as client:
        print(client.process_id, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        process_id = int(parent.stdout.readline())
        parent.kill()
    assert ended(process_id, within_s=10)
