"""Answers that earned their reward, kept to be imitated again.

While a policy is poor, a right answer is rare and dear: eight samples of which one is right cost
eight verifications, and one gradient step takes little of what that one answer could teach. So the
learner keeps the right answers of mixed groups and adds, to each update, the likelihood of some of
them (self-imitation, Oh et al. 2018). Measured on the repair pack, that is worth half of the gain
again for the same rollouts; repeating whole batches instead, wrong answers included, destroys the
policy. See docs/training.md.

An answer of a group that is mostly right is not kept: the policy knows it.
"""

from collections import deque
from random import Random

from tiltyard.training.batches import PromptAnswers
from tiltyard.training.recipe import Recipe

KEPT_MAX = 3_000
"""Older answers are forgotten; these are the successes of about a hundred updates."""
SOLVED_SHARE_MAX = 0.75
"""Answers of groups that are right more often than this are not kept."""


class SolvedAnswers:
    """The kept answers, and a draw of them that a seed fixes."""

    def __init__(self, recipe: Recipe) -> None:
        self._count = recipe.replay_answers
        self._rng = Random(f"replay/{recipe.seed}")  # noqa: S311 - an order of imitation
        self._kept: deque[tuple[tuple[int, ...], tuple[int, ...]]] = deque(maxlen=KEPT_MAX)

    def keep(self, group: PromptAnswers) -> None:
        """Keep the distinct answers of one prompt that did better than their group."""
        total = sum(group.weights)
        better = [i for i, advantage in enumerate(group.advantages) if advantage > 0.0]
        if 0.0 < sum(group.weights[i] for i in better) <= SOLVED_SHARE_MAX * total:
            self._kept.extend((group.prompt, group.answers[i]) for i in better)

    def draw(self) -> list[PromptAnswers]:
        """Some kept answers by prompt; none while there are too few to choose from."""
        if self._count == 0 or len(self._kept) < self._count:
            return []
        of_prompt: dict[tuple[int, ...], dict[tuple[int, ...], None]] = {}
        for prompt, answer in self._rng.sample(self._kept, self._count):
            of_prompt.setdefault(prompt, {})[answer] = None
        return [PromptAnswers(prompt, tuple(answers)) for prompt, answers in of_prompt.items()]
