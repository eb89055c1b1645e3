"""AdamW over the learned weights, with the gradient's norm bounded."""

import math

import torch

from tiltyard.training.recipe import Recipe
from tiltyard.training.trainable import Trainable

_BETAS = (0.9, 0.98)
# Rewards make a noisier gradient than imitation; a longer memory than 0.98's 50 steps would
# outlast the policy it describes.


class Optimiser:
    """Applies the gradients that backward passes left on the computing copy."""

    def __init__(self, trainable: Trainable, recipe: Recipe) -> None:
        self._trainable = trainable
        self._gradient_norm_max = recipe.gradient_norm_max
        weights = list(trainable.master.parameters())
        self._weights = weights
        matrices = [weight for weight in weights if weight.dim() > 1]
        gains = [weight for weight in weights if weight.dim() < 2]
        self._adamw = torch.optim.AdamW(
            [
                {"params": matrices, "weight_decay": recipe.weight_decay},
                {"params": gains, "weight_decay": 0.0},
            ],
            lr=1.0,
            betas=_BETAS,
        )

    def step(self, learning_rate: float) -> float:
        """One step; returns the gradient's norm before it was bounded.

        A gradient that is not finite changes nothing: one bad batch must not end the run.
        """
        self._trainable.collect_gradients()
        norm = float(torch.nn.utils.clip_grad_norm_(self._weights, self._gradient_norm_max))
        if math.isfinite(norm):
            for group in self._adamw.param_groups:
                group["lr"] = learning_rate
            self._adamw.step()
            self._trainable.publish()
        self._trainable.drop_gradients()
        return norm
