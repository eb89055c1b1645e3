"""What the learner is asked and what it answers: values, and the frames they travel in.

The learner runs in a process of its own, and both processes are Tiltyard's, yet nothing is
pickled: a frame is four bytes of length and a JSON document, bounded in size, so that a damaged
stream ends in an error and never in running what it says.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from tiltyard.core.errors import TiltyardError
from tiltyard.core.trajectory import PolicyTokens

FRAME_BYTES_MAX: Final = 64 * 1024 * 1024
"""An update of 2,000 rollouts has about 2 MB; more than this is a fault."""
LENGTH_BYTES: Final = 4


class FrameDamaged(TiltyardError):
    """Bytes between the learner and its client that are no frame. The stream cannot go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One answer wanted."""

    key: str
    """With the recipe's seed it fixes the randomness of the answer; equal keys and equal weights
    give the equal answer."""
    text: str
    """The rendered prompt; questions of equal text share one pass over it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One sampled answer."""

    text: str
    tokens: PolicyTokens
    truncated: bool
    policy_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedRollout:
    """What the learner needs of one rollout: each turn's tokens, and the reward."""

    turns: tuple[PolicyTokens, ...]
    reward: float | None
    """None: no reward; the rollout is masked out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateMetrics:
    """What one update did."""

    update: int
    """Its number, from 1."""
    learning_rate: float
    loss: float
    gradient_norm: float
    """Before clipping."""
    clipped_fraction: float
    """Part of the tokens whose probability ratio lay outside the clip range."""
    entropy: float
    """Estimate in nats a token: minus the mean log-probability of what was sampled."""
    groups_used: int
    groups_dropped: int
    """Without signal: all rewarded members got the same, or fewer than two were rewarded."""
    rollouts_masked: int
    """Without a reward."""
    tokens: int
    answers_replayed: int
    """Earlier right answers that were imitated beside the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """What a learner says once it can act."""

    policy_version: str
    parameters: int
    from_cache: bool
    """True when the warm start was read instead of made."""
    exact_match: float
    """Part of sampled answers that equal the reference's line, when the warm start stopped."""
    warm_start_steps: int
    warm_start_cpu_s: float
    cache_problem: str = ""
    """Why the warm start could not be kept for the next run; empty when it is."""


def pack_frame(document: dict[str, Any]) -> bytes:
    """One frame. Raises FrameDamaged when the document is too large to be received."""
    body = json.dumps(document, separators=(",", ":")).encode()
    if len(body) > FRAME_BYTES_MAX:
        raise FrameDamaged(f"A frame of {len(body)} bytes exceeds {FRAME_BYTES_MAX}.")
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def frame_length(head: bytes) -> int:
    """The body's length; raises FrameDamaged for one out of bounds."""
    length = int.from_bytes(head, "big")
    if len(head) != LENGTH_BYTES or not 2 <= length <= FRAME_BYTES_MAX:
        raise FrameDamaged(f"A frame claims {length} bytes; 2 to {FRAME_BYTES_MAX} are possible.")
    return length


def unpack_frame(body: bytes) -> dict[str, Any]:
    """The document; raises FrameDamaged for anything that is not a JSON object."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FrameDamaged(f"A frame holds no JSON: {body[:40]!r}.") from error
    if not isinstance(document, dict):
        raise FrameDamaged(f"A frame holds a {type(document).__name__}, not an object.")
    return document


def questions_to_json(questions: Sequence[Question]) -> dict[str, Any]:
    """Questions with each distinct text once."""
    texts = list(dict.fromkeys(question.text for question in questions))
    place = {text: i for i, text in enumerate(texts)}
    asked = [[place[question.text], question.key] for question in questions]
    return {"texts": texts, "asked": asked}


def questions_from_json(document: dict[str, Any]) -> list[Question]:
    try:
        texts = document["texts"]
        return [Question(key=str(key), text=str(texts[i])) for i, key in document["asked"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FrameDamaged(f"Not a list of questions: {error!r}.") from error


def replies_to_json(replies: Sequence[Reply]) -> dict[str, Any]:
    """Replies with each distinct prompt's ids once."""
    prompts = list(dict.fromkeys(reply.tokens.prompt_ids for reply in replies))
    place = {prompt: i for i, prompt in enumerate(prompts)}
    rows = [
        [
            place[reply.tokens.prompt_ids],
            reply.text,
            reply.tokens.output_ids,
            reply.tokens.logprobs,
            reply.truncated,
        ]
        for reply in replies
    ]
    version = replies[0].policy_version if replies else ""
    return {"prompts": prompts, "rows": rows, "policy_version": version}


def replies_from_json(document: dict[str, Any]) -> list[Reply]:
    try:
        prompts = [tuple(map(int, prompt)) for prompt in document["prompts"]]
        version = str(document["policy_version"])
        return [
            Reply(
                text=str(text),
                tokens=_tokens(prompts[place], output, logprobs),
                truncated=bool(truncated),
                policy_version=version,
            )
            for place, text, output, logprobs, truncated in document["rows"]
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FrameDamaged(f"Not a list of replies: {error!r}.") from error


def groups_to_json(groups: Sequence[Sequence[LearnedRollout]]) -> dict[str, Any]:
    """Groups of rollouts with each distinct prompt's ids once."""
    place: dict[tuple[int, ...], int] = {}
    rows = [
        [
            [
                rollout.reward,
                [
                    [
                        place.setdefault(turn.prompt_ids, len(place)),
                        turn.output_ids,
                        turn.logprobs,
                    ]
                    for turn in rollout.turns
                ],
            ]
            for rollout in group
        ]
        for group in groups
    ]
    return {"prompts": list(place), "groups": rows}


def groups_from_json(document: dict[str, Any]) -> list[list[LearnedRollout]]:
    try:
        prompts = [tuple(map(int, prompt)) for prompt in document["prompts"]]
        return [
            [
                LearnedRollout(
                    turns=tuple(
                        _tokens(prompts[place], output, logprobs)
                        for place, output, logprobs in turns
                    ),
                    reward=None if reward is None else float(reward),
                )
                for reward, turns in group
            ]
            for group in document["groups"]
        ]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise FrameDamaged(f"Not a list of groups: {error!r}.") from error


def value_to_json(value: UpdateMetrics | Started) -> dict[str, Any]:
    return asdict(value)


def metrics_from_json(document: dict[str, Any]) -> UpdateMetrics:
    try:
        return UpdateMetrics(**document)
    except TypeError as error:
        raise FrameDamaged(f"Not the metrics of an update: {error}.") from error


def started_from_json(document: dict[str, Any]) -> Started:
    try:
        return Started(**document)
    except TypeError as error:
        raise FrameDamaged(f"Not a start report: {error}.") from error


def _tokens(
    prompt: tuple[int, ...], output: Sequence[int], logprobs: Sequence[float]
) -> PolicyTokens:
    if len(output) != len(logprobs):
        raise ValueError(f"{len(output)} ids with {len(logprobs)} log-probabilities")
    return PolicyTokens(
        prompt_ids=prompt,
        output_ids=tuple(map(int, output)),
        logprobs=tuple(map(float, logprobs)),
    )
