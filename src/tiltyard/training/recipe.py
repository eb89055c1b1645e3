"""Every number of the built-in recipe in one place, and nothing that computes.

The defaults are the ones that were measured best on two slow cores within ten minutes; see
docs/training.md for the measurements. Pure: the process that owns the sandboxes builds a `Recipe`
and sends it to the learner's process.
"""

from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tiltyard.core.errors import UsageError

ANSWER_TOKENS_MAX: Final = 32
"""Longer answers are cut. The longest right answer of the repair pack has 26 tokens."""
PROMPT_TOKENS_MAX: Final = 384
"""Longer prompts are refused. The longest of the repair pack has about 150 tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartPlan:
    """First reading right code, then imitating repairs, stopped while that is still poor."""

    tasks_per_step: int = 32
    reading_steps: int = 200
    """Steps of predicting right code of the trained families, before any repair is shown."""
    steps_max: int = 400
    """Steps of imitation at most."""
    learning_rate: float = 4e-3
    prompt_loss_weight: float = 0.3
    """Weight of predicting the prompt's own tokens beside the answer's: the code of a prompt is
    mostly right, so it teaches what code looks like for the price of the logits."""
    check_every: int = 25
    stop_at_exact: float = 0.13
    """Ends when this part of sampled answers equals the reference's line. No answer is executed
    for that; the part that passes the tests is a little higher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What makes a policy and how it learns. Two equal recipes give equal runs on one machine."""

    seed: int = 0
    vocabulary: int = 768
    channels: int = 128
    layers: int = 5
    heads: int = 4
    warm_start: WarmStartPlan = field(default_factory=WarmStartPlan)
    updates: int = 180
    """Planned optimiser steps of reinforcement learning; the learning rate's decay follows it."""
    learning_rate: float = 1e-3
    warm_up_updates: int = 10
    decay_from: float = 0.5
    """Part of the updates after which the learning rate falls linearly to its last value."""
    learning_rate_last: float = 0.02
    """The last learning rate, as a part of `learning_rate`."""
    replay_answers: int = 64
    """Earlier right answers imitated beside each update; 0 turns that off."""
    replay_weight: float = 1.0
    """Weight of their mean log-likelihood a token beside the clipped surrogate."""
    weight_decay: float = 0.01
    gradient_norm_max: float = 1.0
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.channels % (2 * self.heads):
            raise UsageError(
                f"{self.channels} channels cannot be split over {self.heads} heads of even size.",
                fix="Make channels a multiple of twice the heads.",
            )
        if self.updates < 1 or not 0.0 < self.temperature <= 10.0:
            raise UsageError(
                f"A recipe of {self.updates} updates at temperature {self.temperature} is no run.",
                fix="Use at least one update and a temperature above 0, 10 at most.",
            )

    def learning_rate_at(self, update: int) -> float:
        """The learning rate of an update, counted from 0: rise, plateau, linear fall."""
        rise = min(1.0, (update + 1) / max(self.warm_up_updates, 1))
        start = self.decay_from * self.updates
        left = (self.updates - update) / max(self.updates - start, 1e-9)
        fall = max(self.learning_rate_last, min(1.0, left))
        return self.learning_rate * min(rise, fall)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> "Recipe":
        """Read what `to_json` wrote; raises UsageError for anything else."""
        try:
            rest = {key: value for key, value in document.items() if key != "warm_start"}
            return cls(**rest, warm_start=WarmStartPlan(**document["warm_start"]))
        except (TypeError, KeyError) as error:
            raise UsageError(
                f"Not a recipe: {error}.", fix="Send what Recipe.to_json() gives."
            ) from error
