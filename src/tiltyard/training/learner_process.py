"""The learner's own process: reads requests from standard input, one at a time, and answers them.

Run by `LearnerClient` as `python -m tiltyard.training.learner_process`. A gradient step takes a
second and holds the interpreter; in the process that owns the sandboxes it would stop every one of
them. It is started as a new program and never forked: a fork of a process that holds hundreds of
sandboxes costs tens of milliseconds and copies their descriptors.

It lives exactly as long as its client: the kernel ends it with its parent, and the end of standard
input ends it too. Standard output carries frames only; what anything prints goes to standard
error.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from tiltyard.core.errors import StoreError, TiltyardError, UsageError
from tiltyard.training.exchange import (
    LENGTH_BYTES,
    FrameDamaged,
    Started,
    frame_length,
    groups_from_json,
    pack_frame,
    questions_from_json,
    replies_to_json,
    unpack_frame,
    value_to_json,
)
from tiltyard.training.recipe import Recipe

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve until the client closes; the exit code is 0 then, and 1 after a damaged stream."""
    _die_with_parent()
    # Ctrl-C reaches the whole terminal; the client decides what it means for the learner.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with os.fdopen(os.dup(1), "wb", buffering=0) as answers:
        os.dup2(2, 1)
        try:
            _serve(sys.stdin.buffer, answers)
        except FrameDamaged as error:
            sys.stderr.write(f"{error}\n")
            return 1
        except BrokenPipeError:
            return 0
    return 0


def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    session = _Session()
    while (frame := _read_frame(requests)) is not None:
        number = frame.get("number")

        def send(kind: str, body: dict[str, Any], number: object = number) -> None:
            _write_all(answers, pack_frame({"number": number, kind: body}))

        try:
            if frame.get("op") == "close":
                send("done", {})
                return
            send("done", session.perform(frame, report=lambda body: send("progress", body)))
        except FrameDamaged:
            raise
        except TiltyardError as error:
            send("error", {"kind": _kind(error), "message": error.message, "fix": error.fix})


def _kind(error: TiltyardError) -> str:
    if isinstance(error, UsageError):
        return "usage"
    return "store" if isinstance(error, StoreError) else "learner"


class _Session:
    """The learner, once it is started."""

    def __init__(self) -> None:
        self._learner: Any = None

    def perform(
        self, frame: dict[str, Any], *, report: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        op, body = frame.get("op"), frame.get("body", {})
        if op == "start":
            return self._start(body, report)
        if self._learner is None:
            raise UsageError(f"The learner was asked to {op!r} before it was started.")
        match op:
            case "act":
                return replies_to_json(self._learner.act(questions_from_json(body)))
            case "update":
                return value_to_json(self._learner.update(groups_from_json(body)))
            case "note_score":
                return {"kept": self._learner.note_score(float(body["score"]))}
            case "use_best":
                return {"policy_version": self._learner.use_best()}
            case "save":
                self._learner.save(Path(body["path"]))
                return {}
            case _:
                raise FrameDamaged(f"The learner knows no operation {op!r}.")

    def _start(
        self, body: dict[str, Any], report: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        # Only here, so that a client gets the missing extra as an answer and not as a traceback.
        import torch

        from tiltyard.training.learner import Learner
        from tiltyard.training.trainable import fast_precision
        from tiltyard.training.warm_start import WarmStartProgress, warm_start

        torch.set_num_threads(1)
        recipe = Recipe.from_json(body["recipe"])

        def tell(progress: WarmStartProgress) -> None:
            report(
                {
                    "step": progress.step,
                    "steps_max": progress.steps_max,
                    "loss": progress.loss,
                    "exact_match": progress.exact_match,
                }
            )

        begun = warm_start(
            recipe,
            cache_dir=Path(body["cache_dir"]),
            precision=fast_precision(),
            report=tell,
        )
        self._learner = Learner(recipe, begun.trainable, begun.tokenizer)
        started = Started(
            policy_version=self._learner.policy_version,
            parameters=self._learner.parameters_count,
            from_cache=begun.from_cache,
            exact_match=begun.exact_match,
            warm_start_steps=begun.steps,
            warm_start_cpu_s=begun.cpu_s,
            cache_problem=begun.cache_problem,
        )
        return value_to_json(started)


def _read_frame(requests: BinaryIO) -> dict[str, Any] | None:
    """The next frame; None at the end of the stream."""
    head = requests.read(LENGTH_BYTES)
    if not head:
        return None
    body = requests.read(length := frame_length(head))
    if len(body) < length:
        return None
    return unpack_frame(body)


def _write_all(answers: BinaryIO, frame: bytes) -> None:
    rest = memoryview(frame)
    while rest:
        rest = rest[answers.write(rest) :]


def _die_with_parent() -> None:
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
