"""The policy that reinforcement learning starts from: imitation of the pack's own repairs.

A fresh model never writes a line that parses, so no reward would ever differ from another. The
warm start has two parts, both on training seeds of the trained families only. The model first
reads right code, as a language model is pre-trained before it is put to a task; then it imitates
pairs of faulty code and repaired line. That stops early: a policy that is right one time in seven
is sometimes right about most things, and has everything left to gain from rewards.

Imitation stops by exact match with the reference's line on training seeds it has not learned
from, so nothing is executed here. The result is a pure function of what `_content_key` names, and
is kept under that key.
"""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path

import torch

from tiltyard.core.errors import StoreError, UsageError
from tiltyard.core.task import Split, Task
from tiltyard.tasks.repair import REVISION as PACK_REVISION, make_task
from tiltyard.training.answer import render_answer, render_prompt
from tiltyard.training.batches import PromptAnswers, answer_batches
from tiltyard.training.bpe import ASK_ID, Bpe, learn_bpe
from tiltyard.training.checkpoint import (
    Checkpoint,
    CheckpointDamaged,
    load_checkpoint,
    save_checkpoint,
)
from tiltyard.training.model import ModelShape
from tiltyard.training.optimiser import Optimiser
from tiltyard.training.recipe import ANSWER_TOKENS_MAX, PROMPT_TOKENS_MAX, Recipe, WarmStartPlan
from tiltyard.training.sampling import sample, uniform_draws
from tiltyard.training.trainable import Trainable

REVISION = "2"
"""Raised whenever the same recipe may give other weights than before."""

# Training seeds are endless; these ranges keep apart what must not overlap. Reinforcement
# learning takes seeds above all of them: see `trainer.FIRST_SEED`.
_CORPUS_FIRST_SEED = 10_000_000
_CHECK_FIRST_SEED = 20_000_000
_READING_FIRST_SEED = 40_000_000
_CORPUS_TASKS = 600
_CHECK_TASKS = 100
_CHECK_SAMPLES = 4
_WARM_UP_STEPS = 30
_READING_DECAY_FROM = 0.7
"""Part of the reading after which its learning rate falls to nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartProgress:
    """Where a warm start stands, after each check."""

    step: int
    """Of reading and imitation together."""
    steps_max: int
    loss: float
    """Nats a token of the last step: of the code when reading, of the answer when imitating."""
    exact_match: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStarted:
    """A policy that can act, and how it came about."""

    trainable: Trainable
    tokenizer: Bpe
    from_cache: bool
    exact_match: float
    steps: int
    cpu_s: float
    """CPU time of making it, whenever that was."""
    cache_problem: str = ""
    """Why it could not be kept for the next run; empty when it is."""


def warm_start(
    recipe: Recipe,
    *,
    cache_dir: Path,
    precision: torch.dtype,
    report: Callable[[WarmStartProgress], None],
) -> WarmStarted:
    """Read the warm start from the cache, or make it and keep it there.

    A damaged cache file is replaced. A cache that cannot be used costs time and nothing else: the
    result says so.
    """
    path = cache_dir / f"warm-start-{_content_key(recipe, precision)}.policy"
    try:
        if path.exists():
            return _read(path, precision)
    except CheckpointDamaged:
        pass  # replaced below
    except OSError as error:
        return replace(_make(recipe, precision, report), cache_problem=f"{path}: {error.strerror}")
    made = _make(recipe, precision, report)
    notes = {"exact_match": made.exact_match, "steps": made.steps, "cpu_s": made.cpu_s}
    checkpoint = Checkpoint(
        shape=made.trainable.shape,
        tokenizer=made.tokenizer,
        weights=made.trainable.weights(),
        notes=notes,
    )
    try:
        save_checkpoint(path, checkpoint)
    except StoreError as error:
        return replace(made, cache_problem=error.message)
    return made


def prompt_ids(tokenizer: Bpe, text: str) -> tuple[int, ...]:
    """The token ids of a rendered prompt, ready for an answer.

    Raises UsageError for one that is too long for the model.
    """
    ids = (*tokenizer.encode(text.encode("utf-8", "replace")), ASK_ID)
    if len(ids) > PROMPT_TOKENS_MAX:
        raise UsageError(
            f"A prompt of {len(ids)} tokens exceeds the built-in policy's {PROMPT_TOKENS_MAX}.",
            fix="Use a served model for tasks of this size.",
        )
    return ids


def _content_key(recipe: Recipe, precision: torch.dtype) -> str:
    parts = {
        "revision": REVISION,
        "pack": PACK_REVISION,
        "torch": torch.__version__,
        "precision": str(precision),
        "seed": recipe.seed,
        "shape": [recipe.vocabulary, recipe.channels, recipe.layers, recipe.heads],
        "plan": asdict(recipe.warm_start),
        "weight_decay": recipe.weight_decay,
        "gradient_norm_max": recipe.gradient_norm_max,
        # It decides when imitation stops.
        "temperature": recipe.temperature,
    }
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=12).hexdigest()


def _read(path: Path, precision: torch.dtype) -> WarmStarted:
    kept = load_checkpoint(path)
    try:
        trainable = Trainable(kept.shape, precision)
        trainable.load(kept.weights)
        return WarmStarted(
            trainable=trainable,
            tokenizer=kept.tokenizer,
            from_cache=True,
            exact_match=float(kept.notes["exact_match"]),
            steps=int(kept.notes["steps"]),
            cpu_s=float(kept.notes["cpu_s"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointDamaged(f"{path} does not fit its recipe: {error}.") from error


def _make(
    recipe: Recipe, precision: torch.dtype, report: Callable[[WarmStartProgress], None]
) -> WarmStarted:
    started_s = time.process_time()
    corpus = [_train_task(_CORPUS_FIRST_SEED + i) for i in range(_CORPUS_TASKS)]
    tokenizer = learn_bpe(
        [_prompt_text(task).encode() for task in corpus], vocabulary=recipe.vocabulary
    )
    shape = ModelShape(
        vocabulary=tokenizer.vocabulary,
        channels=recipe.channels,
        layers=recipe.layers,
        heads=recipe.heads,
        positions=PROMPT_TOKENS_MAX + ANSWER_TOKENS_MAX,
    )
    trainable = Trainable(shape, precision)
    trainable.master.initialise(torch.Generator().manual_seed(recipe.seed))
    trainable.publish()
    plan = recipe.warm_start
    steps_max = plan.reading_steps + plan.steps_max

    def tell(step: int, loss: float, exact_match: float) -> None:
        if step % plan.check_every == 0:
            report(
                WarmStartProgress(
                    step=step, steps_max=steps_max, loss=loss, exact_match=exact_match
                )
            )

    optimiser = Optimiser(trainable, recipe)
    for step in range(plan.reading_steps):
        loss = _read_code(trainable, tokenizer, _tasks(_READING_FIRST_SEED, step, plan))
        left = (plan.reading_steps - step) / plan.reading_steps
        fall = min(1.0, left / (1.0 - _READING_DECAY_FROM))
        optimiser.step(plan.learning_rate * _rise(step) * fall)
        tell(step + 1, loss, 0.0)
    optimiser = Optimiser(trainable, recipe)
    exact_match = 0.0
    step = 0
    while step < plan.steps_max and exact_match < plan.stop_at_exact:
        loss = _imitate(trainable, tokenizer, _tasks(0, step, plan), plan.prompt_loss_weight)
        optimiser.step(plan.learning_rate * _rise(step))
        step += 1
        if step % plan.check_every == 0:
            exact_match = _exact_match(trainable, tokenizer, recipe)
        tell(plan.reading_steps + step, loss, exact_match)
    return WarmStarted(
        trainable=trainable,
        tokenizer=tokenizer,
        from_cache=False,
        exact_match=exact_match,
        steps=plan.reading_steps + step,
        cpu_s=time.process_time() - started_s,
    )


def _rise(step: int) -> float:
    return min(1.0, (step + 1) / _WARM_UP_STEPS)


def _tasks(first_seed: int, step: int, plan: WarmStartPlan) -> list[Task]:
    first = first_seed + step * plan.tasks_per_step
    return [_train_task(first + i) for i in range(plan.tasks_per_step)]


def _read_code(trainable: Trainable, tokenizer: Bpe, tasks: Sequence[Task]) -> float:
    """Add the gradient of predicting right code after its instruction; returns the loss."""
    texts = [render_prompt(task.instruction, task.reference) for task in tasks]
    rows = [tuple(tokenizer.encode(text.encode())) for text in texts]
    tokens = sum(len(row) - 1 for row in rows)
    loss = 0.0
    for batch in answer_batches([PromptAnswers(row[:1], (row[1:],)) for row in rows]):
        part = -batch.logprobs(trainable.model).sum() / tokens
        part.backward()  # type: ignore[no-untyped-call]
        loss += float(part.detach())
    return loss


def _imitate(
    trainable: Trainable, tokenizer: Bpe, tasks: Sequence[Task], prompt_weight: float
) -> float:
    """Add the gradient of one step of imitation; returns the loss of the answers' tokens.

    Prompt and answer are scored as one answer to the prompt's first token. What would be its
    sampled log-probabilities tells the two parts apart: 1 for a token of the answer, 0 else.
    """
    answers_total = prompts_total = 0
    rows = []
    for task in tasks:
        prompt = prompt_ids(tokenizer, _prompt_text(task))
        answer = tokenizer.encode(render_answer(task.starter, task.reference).encode())
        is_answer = (0.0,) * (len(prompt) - 1) + (1.0,) * len(answer)
        rows.append(PromptAnswers(prompt[:1], ((*prompt[1:], *answer),), (is_answer,)))
        answers_total += len(answer)
        prompts_total += len(prompt) - 2
    loss = 0.0
    for batch in answer_batches(rows):
        logprobs = batch.logprobs(trainable.model)
        of_answer = batch.sampled_logprobs()
        of_prompt = (1.0 - of_answer) * (batch.targets != ASK_ID)
        answer_loss = -(logprobs * of_answer).sum() / answers_total
        prompt_loss = -(logprobs * of_prompt).sum() / prompts_total
        (answer_loss + prompt_weight * prompt_loss).backward()  # type: ignore[no-untyped-call]
        loss += float(answer_loss.detach())
    return loss


def _exact_match(trainable: Trainable, tokenizer: Bpe, recipe: Recipe) -> float:
    tasks = [_train_task(_CHECK_FIRST_SEED + i) for i in range(_CHECK_TASKS)]
    keys = [f"check/{task.id}" for task in tasks]
    answers = sample(
        trainable.model,
        [prompt_ids(tokenizer, _prompt_text(task)) for task in tasks],
        [
            uniform_draws(recipe.seed, [f"{key}/{i}" for i in range(_CHECK_SAMPLES)], steps)
            for key in keys
            for steps in (ANSWER_TOKENS_MAX,)
        ],
        temperature=recipe.temperature,
        stop_ids=tokenizer.line_end_ids,
    )
    right = [
        tokenizer.decode(answer.ids) == render_answer(task.starter, task.reference).encode()
        for task, row in zip(tasks, answers, strict=True)
        for answer in row
    ]
    return sum(right) / len(right)


def _train_task(seed: int) -> Task:
    return make_task(seed, split=Split.TRAIN)


def _prompt_text(task: Task) -> str:
    return render_prompt(task.instruction, task.starter)
