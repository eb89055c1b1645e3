"""The learner: a policy that answers and gets better by its rewards.

It holds the model, its tokenizer, the optimiser and the best weights seen, and knows nothing of
tasks, sandboxes or processes. Everything it does follows from its recipe and its calls: the same
calls in the same order give the same weights. It sets no thread count; the process that owns it
does.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from tiltyard.core.trajectory import PolicyTokens
from tiltyard.training.batches import PromptAnswers, answer_batches
from tiltyard.training.bpe import Bpe
from tiltyard.training.checkpoint import Checkpoint, save_checkpoint
from tiltyard.training.exchange import LearnedRollout, Question, Reply, UpdateMetrics
from tiltyard.training.grpo import clipped_fraction, group_advantages, has_signal, policy_loss
from tiltyard.training.optimiser import Optimiser
from tiltyard.training.recipe import ANSWER_TOKENS_MAX, Recipe
from tiltyard.training.replay import SolvedAnswers
from tiltyard.training.sampling import sample, uniform_draws
from tiltyard.training.trainable import Trainable
from tiltyard.training.warm_start import prompt_ids

_PROMPTS_PER_BATCH = 32
"""Prompts sampled at once, about equally long ones: a batch is padded to its longest."""


class Learner:
    """One policy and its learning. Not for sharing between threads."""

    def __init__(self, recipe: Recipe, trainable: Trainable, tokenizer: Bpe) -> None:
        self._recipe = recipe
        self._trainable = trainable
        self._tokenizer = tokenizer
        self._optimiser = Optimiser(trainable, recipe)
        self._solved = SolvedAnswers(recipe)
        self._updates = 0
        self._kept: _Kept | None = None
        self._version = "0"

    @property
    def policy_version(self) -> str:
        """Number of updates behind the weights that answer."""
        return self._version

    @property
    def parameters_count(self) -> int:
        return self._trainable.parameters_count

    def act(self, questions: Sequence[Question]) -> list[Reply]:
        """One sampled answer to each question, in their order.

        Raises UsageError for a prompt that is too long.
        """
        of_text: dict[str, list[int]] = defaultdict(list)
        for place, question in enumerate(questions):
            of_text[question.text].append(place)
        replies: dict[int, Reply] = {}
        prompts = {text: prompt_ids(self._tokenizer, text) for text in of_text}
        texts = sorted(of_text, key=lambda text: len(prompts[text]))
        for start in range(0, len(texts), _PROMPTS_PER_BATCH):
            part = texts[start : start + _PROMPTS_PER_BATCH]
            self._act_on(part, prompts, of_text, questions, replies)
        return [replies[place] for place in range(len(questions))]

    def update(self, groups: Sequence[Sequence[LearnedRollout]]) -> UpdateMetrics:
        """One step of GRPO on groups of rollouts that are compared with each other.

        A batch without any signal still counts as an update, and leaves the weights as they are.
        """
        advantages = [group_advantages([rollout.reward for rollout in group]) for group in groups]
        used = [has_signal(of_group) for of_group in advantages]
        scored = _merged(
            [
                (rollout, advantage)
                for group, of_group, useful in zip(groups, advantages, used, strict=True)
                if useful
                for rollout, advantage in zip(group, of_group, strict=True)
                if rollout.reward is not None
            ]
        )
        learning_rate = self._recipe.learning_rate_at(self._updates)
        loss, clipped = self._accumulate(scored)
        imitated = self._imitate_solved(scored) if scored else 0
        norm = self._optimiser.step(learning_rate) if scored else 0.0
        self._updates += 1
        self._version = str(self._updates)
        sampled = [p for group in groups for r in group for turn in r.turns for p in turn.logprobs]
        return UpdateMetrics(
            update=self._updates,
            learning_rate=learning_rate,
            loss=loss,
            gradient_norm=norm,
            clipped_fraction=clipped,
            entropy=-sum(sampled) / max(len(sampled), 1),
            groups_used=sum(used),
            groups_dropped=len(used) - sum(used),
            rollouts_masked=sum(rollout.reward is None for group in groups for rollout in group),
            tokens=len(sampled),
            answers_replayed=imitated,
        )

    def note_score(self, score: float) -> bool:
        """Tell how good the present weights are; they are kept when nothing was better so far."""
        if self._kept is not None and score < self._kept.score:
            return False
        self._kept = _Kept(score=score, version=self._version, weights=self._trainable.weights())
        return True

    def use_best(self) -> str:
        """Go back to the best noted weights, if any were noted; returns the policy's version."""
        if self._kept is not None:
            self._trainable.load(self._kept.weights)
            self._version = self._kept.version
        return self._version

    def save(self, path: Path) -> None:
        """Write the present weights. Raises StoreError when that fails."""
        save_checkpoint(
            path,
            Checkpoint(
                shape=self._trainable.shape,
                tokenizer=self._tokenizer,
                weights=self._trainable.weights(),
                notes={"policy_version": self._version, "recipe": self._recipe.to_json()},
            ),
        )

    def _act_on(
        self,
        texts: Sequence[str],
        prompts: dict[str, tuple[int, ...]],
        of_text: dict[str, list[int]],
        questions: Sequence[Question],
        replies: dict[int, Reply],
    ) -> None:
        draws = [
            uniform_draws(
                self._recipe.seed,
                [questions[place].key for place in of_text[text]],
                ANSWER_TOKENS_MAX,
            )
            for text in texts
        ]
        answers = sample(
            self._trainable.model,
            [prompts[text] for text in texts],
            draws,
            temperature=self._recipe.temperature,
            stop_ids=self._tokenizer.line_end_ids,
        )
        for text, row in zip(texts, answers, strict=True):
            for place, answer in zip(of_text[text], row, strict=True):
                replies[place] = Reply(
                    text=self._tokenizer.decode(answer.ids).decode("utf-8", "replace"),
                    tokens=PolicyTokens(
                        prompt_ids=prompts[text], output_ids=answer.ids, logprobs=answer.logprobs
                    ),
                    truncated=answer.truncated,
                    policy_version=self._version,
                )

    def _accumulate(self, scored: Sequence[PromptAnswers]) -> tuple[float, float]:
        """Backward passes over everything; the loss and the part of the tokens that was clipped."""
        tokens = sum(
            weight * len(answer)
            for group in scored
            for answer, weight in zip(group.answers, group.weights, strict=True)
        )
        loss = clipped = 0.0
        for batch in answer_batches(scored):
            logprobs = batch.logprobs(self._trainable.model, self._recipe.temperature)
            sampled, weights = batch.sampled_logprobs(), batch.weights()
            part = policy_loss(logprobs, sampled, batch.advantages(), weights, tokens=tokens)
            part.backward()  # type: ignore[no-untyped-call]
            loss += float(part.detach())
            share = float(weights.sum()) / tokens
            clipped += share * clipped_fraction(logprobs.detach(), sampled, weights)
        return loss, clipped

    def _imitate_solved(self, scored: Sequence[PromptAnswers]) -> int:
        """Add the gradient of some kept answers, then keep those of this batch; how many added."""
        replayed = self._solved.draw()
        tokens = sum(len(answer) for group in replayed for answer in group.answers)
        for batch in answer_batches(replayed):
            logprobs = batch.logprobs(self._trainable.model, self._recipe.temperature)
            likelihood = logprobs.sum() / tokens
            (-self._recipe.replay_weight * likelihood).backward()  # type: ignore[no-untyped-call]
        for group in scored:
            self._solved.keep(group)
        return sum(len(group.answers) for group in replayed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    score: float
    version: str
    weights: dict[str, Tensor]


def _merged(
    rollouts: Sequence[tuple[LearnedRollout, float]],
) -> list[PromptAnswers]:
    """Turns by prompt, with identical answers of equal advantage merged into one with a weight.

    Merging changes no gradient: the loss is a sum over answers, and equal answers to one prompt
    have equal terms. It saves a third of the work early in a run and most of it late.
    """
    turns: dict[tuple[int, ...], Counter[tuple[tuple[int, ...], float]]] = defaultdict(Counter)
    logprobs: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[float, ...]] = {}
    for rollout, advantage in rollouts:
        for turn in rollout.turns:
            if not turn.output_ids:
                continue
            turns[turn.prompt_ids][turn.output_ids, advantage] += 1
            logprobs.setdefault((turn.prompt_ids, turn.output_ids), turn.logprobs)
    return [
        PromptAnswers(
            prompt=prompt,
            answers=tuple(answer for answer, _ in counted),
            sampled_logprobs=tuple(logprobs[prompt, answer] for answer, _ in counted),
            advantages=tuple(advantage for _, advantage in counted),
            weights=tuple(float(count) for count in counted.values()),
        )
        for prompt, counted in turns.items()
    ]
