"""The learner as seen by the process that owns the sandboxes: asynchronous, and without PyTorch.

Requests are answered in the order they are made, so a trainer's order of calls fixes the run. A
request may be cancelled; its answer is then dropped when it comes. When the learner's process
dies, every waiting and every later request raises `LearnerDied` with the last it said.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from tiltyard.core.errors import PolicyError, StoreError, TiltyardError, UsageError
from tiltyard.training.exchange import (
    LENGTH_BYTES,
    FrameDamaged,
    LearnedRollout,
    Question,
    Reply,
    Started,
    UpdateMetrics,
    frame_length,
    groups_to_json,
    metrics_from_json,
    pack_frame,
    questions_to_json,
    replies_from_json,
    started_from_json,
    unpack_frame,
)
from tiltyard.training.recipe import Recipe

START_TIMEOUT_S: Final = 900.0
"""A warm start takes two minutes on two slow cores."""
REQUEST_TIMEOUT_S: Final = 180.0
CLOSE_TIMEOUT_S: Final = 5.0
_SAID_BYTES_MAX = 4_000
_STREAM_LIMIT_BYTES = 1024 * 1024

Report = Callable[[dict[str, Any]], None]


class LearnerDied(PolicyError):
    """The learner's process ended or sent garbage. Nothing of this run's policy is lost that was
    saved; start again from there."""


def require_torch() -> None:
    """Raise UsageError with the fix when the `train` extra is not installed."""
    if find_spec("torch") is None:
        raise UsageError(
            "Training needs PyTorch.",
            fix="In a clone, `make demo` installs it; elsewhere: pip install 'tiltyard[train]'.",
        )


@asynccontextmanager
async def learner_process(
    recipe: Recipe, *, cache_dir: Path, report: Report | None = None
) -> AsyncIterator["LearnerClient"]:
    """Start a learner, ready to act; it is closed, with a deadline, on the way out.

    `report` is called with the warm start's progress; None reports nothing. Raises UsageError
    without PyTorch, StoreError when the cache cannot be written, LearnerDied.
    """
    require_torch()
    async with running_process(
        [sys.executable, "-m", "tiltyard.training.learner_process"]
    ) as client:
        await client.begin(recipe, cache_dir=cache_dir, report=report)
        yield client


@asynccontextmanager
async def running_process(
    command: Sequence[str], *, close_timeout_s: float = CLOSE_TIMEOUT_S
) -> AsyncIterator["LearnerClient"]:
    """A client of a process that is not told to start a learner yet."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        limit=_STREAM_LIMIT_BYTES,
    )
    client = LearnerClient(process, close_timeout_s=close_timeout_s)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(client.read_answers())
        tasks.create_task(client.drain_errors())
        try:
            yield client
        finally:
            await asyncio.shield(client.close())


class LearnerClient:
    """Requests to one learner. Made by `learner_process`."""

    def __init__(self, process: Process, *, close_timeout_s: float) -> None:
        self._process = process
        self._close_timeout_s = close_timeout_s
        self._waiting: dict[int, tuple[asyncio.Future[dict[str, Any]], Report | None]] = {}
        self._number = 0
        self._dead: str | None = None
        self._said = b""
        self._quiet = asyncio.Event()
        self._closed = False
        self._writing = asyncio.Lock()
        self.started: Started | None = None
        """None until the learner can act."""

    @property
    def process_id(self) -> int:
        return self._process.pid

    async def begin(self, recipe: Recipe, *, cache_dir: Path, report: Report | None) -> Started:
        """Make or read the warm start. Called once, by `learner_process`."""
        body = {"recipe": recipe.to_json(), "cache_dir": str(cache_dir)}
        answer = await self._request("start", body, timeout_s=START_TIMEOUT_S, report=report)
        self.started = started_from_json(answer)
        return self.started

    async def act(self, questions: Sequence[Question]) -> list[Reply]:
        """One sampled answer to each question, in their order."""
        replies = replies_from_json(await self._request("act", questions_to_json(questions)))
        if len(replies) != len(questions):
            raise LearnerDied(f"{len(replies)} replies came to {len(questions)} questions.")
        return replies

    async def update(self, groups: Sequence[Sequence[LearnedRollout]]) -> UpdateMetrics:
        """One step of GRPO; see `Learner.update`."""
        return metrics_from_json(await self._request("update", groups_to_json(groups)))

    async def note_score(self, score: float) -> bool:
        """Keep the present weights if none scored better; True when they are kept."""
        return bool((await self._request("note_score", {"score": score}))["kept"])

    async def use_best(self) -> str:
        """Go back to the best noted weights; returns their policy version."""
        return str((await self._request("use_best", {}))["policy_version"])

    async def save(self, path: Path) -> None:
        """Write the present weights. Raises StoreError when that fails."""
        await self._request("save", {"path": str(path)})

    async def close(self) -> None:
        """End the process: ask, wait, then kill. Calling it again does nothing.

        One that is at work would not hear the asking: it is killed at once.
        """
        if self._closed:
            return
        self._closed = True
        try:
            if not self._waiting:
                async with asyncio.timeout(self._close_timeout_s):
                    await self._write(pack_frame({"number": 0, "op": "close"}))
                    await self._process.wait()
        except (TimeoutError, LearnerDied):
            pass  # it does not hear: killed below
        finally:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
            self._fail("it was closed")

    async def read_answers(self) -> None:
        """Hand every answer to who waits for it, until the process ends."""
        answers = self._process.stdout
        assert answers is not None  # noqa: S101 - made with a pipe
        try:
            while True:
                length = frame_length(await answers.readexactly(LENGTH_BYTES))
                self._deliver(unpack_frame(await answers.readexactly(length)))
        except asyncio.IncompleteReadError:
            code = await self._process.wait()
            # Its last words say why; they may come a moment later than its end.
            await self._quiet.wait()
            self._fail(f"it ended with code {code}")
        except FrameDamaged as error:
            if self._process.returncode is None:
                self._process.kill()
            self._fail(f"it sent garbage: {error}")

    async def drain_errors(self) -> None:
        """Read standard error to its end, so that the process never blocks on it; keep the tail."""
        errors = self._process.stderr
        assert errors is not None  # noqa: S101 - made with a pipe
        while said := await errors.read(65_536):
            self._said = (self._said + said)[-_SAID_BYTES_MAX:]
        self._quiet.set()

    async def _request(
        self,
        op: str,
        body: dict[str, Any],
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        report: Report | None = None,
    ) -> dict[str, Any]:
        if self._closed or self._dead is not None:
            raise LearnerDied(f"The learner cannot {op}: {self._dead or 'it was closed'}.")
        self._number += 1
        number = self._number
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting[number] = (answer, report)
        try:
            async with asyncio.timeout(timeout_s):
                await self._write(pack_frame({"number": number, "op": op, "body": body}))
                return await answer
        except TimeoutError:
            self._process.kill()
            raise LearnerDied(f"The learner did not {op} within {timeout_s:g} s.") from None
        finally:
            self._waiting.pop(number, None)

    async def _write(self, frame: bytes) -> None:
        requests = self._process.stdin
        assert requests is not None  # noqa: S101 - made with a pipe
        try:
            # One writer at a time: drain() of a full pipe must not be overtaken by another frame.
            async with self._writing:
                requests.write(frame)
                await requests.drain()
        except (ConnectionError, RuntimeError) as error:
            raise LearnerDied(f"The learner cannot be reached: {error}.") from error

    def _deliver(self, frame: dict[str, Any]) -> None:
        waiting = self._waiting.get(frame.get("number", 0))
        if waiting is None or waiting[0].done():
            return
        answer, report = waiting
        if "progress" in frame:
            if report is not None:
                report(frame["progress"])
        elif "error" in frame:
            answer.set_exception(_error_of(frame["error"]))
        elif isinstance(frame.get("done"), dict):
            answer.set_result(frame["done"])
        else:
            raise FrameDamaged(f"an answer with only {sorted(frame)}")

    def _fail(self, why: str) -> None:
        said = self._said.decode("utf-8", "replace").strip()
        self._dead = self._dead or (f"{why}; it said: {said[-1000:]}" if said else why)
        for answer, _ in self._waiting.values():
            if not answer.done():
                answer.set_exception(LearnerDied(f"The learner is gone: {self._dead}."))


def _error_of(body: object) -> TiltyardError:
    if not isinstance(body, dict):
        raise FrameDamaged(f"an error that is a {type(body).__name__}")
    kinds: dict[object, type[TiltyardError]] = {"usage": UsageError, "store": StoreError}
    kind = kinds.get(body.get("kind"), LearnerDied)
    fix = body.get("fix")
    return kind(str(body.get("message")), fix=None if fix is None else str(fix))
