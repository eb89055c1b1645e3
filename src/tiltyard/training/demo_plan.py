"""The demo's numbers: the recipe and the plan that `make demo` runs."""

from dataclasses import replace

from tiltyard.training.recipe import Recipe
from tiltyard.training.trainer import TrainPlan

DEMO_PLAN = TrainPlan(updates=180)
DEMO_RECIPE = Recipe(updates=DEMO_PLAN.updates, learning_rate=1e-3)
TOTAL_S = 690.0
"""Wall time of a whole demo, under the twelve minutes that it promises."""
LAST_EVALUATIONS_S = 60.0
"""Kept free of it for the last batches and the evaluations at the end."""


def within_time(plan: TrainPlan, *, elapsed_s: float) -> TrainPlan:
    """The plan with what time is left; a slow warm start must not break the promise."""
    left_s = TOTAL_S - LAST_EVALUATIONS_S - elapsed_s
    return replace(plan, budget_s=max(0.0, min(plan.budget_s, left_s)))


def quick(plan: TrainPlan, recipe: Recipe) -> tuple[TrainPlan, Recipe]:
    """A minute of the same: every part runs, and nothing much can be learned."""
    small = replace(
        plan,
        updates=3,
        groups=8,
        samples=4,
        evaluate_every=2,
        validation_tasks=8,
        test_tasks=24,
        unseen_tasks=8,
        evaluation_samples=2,
        budget_s=60.0,
    )
    warm_start = replace(recipe.warm_start, reading_steps=10, steps_max=20, check_every=10)
    return small, replace(recipe, updates=small.updates, warm_start=warm_start)
