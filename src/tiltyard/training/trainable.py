"""The two copies of the weights: one that learns in full precision, one that computes.

Where the processor has bf16 products they are three times faster than fp32 ones, so the forward
and backward passes run on a bf16 copy while the optimiser keeps fp32 weights; otherwise one copy
does both. Sampling and learning use the same copy, so that what was sampled and what is learned
from differ only by rounding.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from tiltyard.training.model import ModelShape, PolicyModel


def fast_precision() -> torch.dtype:
    """bf16 where the processor multiplies it natively, fp32 elsewhere."""
    has = torch.cpu.get_capabilities()
    native = has.get("avx512_bf16") or has.get("amx_bf16")
    return torch.bfloat16 if native else torch.float32


class Trainable:
    """Weights that are learned, and the model that computes with them."""

    def __init__(self, shape: ModelShape, precision: torch.dtype) -> None:
        self.master = PolicyModel(shape)
        self.precision = precision
        self.model = self.master
        """The copy that computes."""
        if precision is not torch.float32:
            self.model = PolicyModel(shape).to(precision)
            # The mask over special tokens is added to fp32 logits.
            self.model.never = self.master.never
        self.publish()

    @property
    def shape(self) -> ModelShape:
        return self.master.shape

    @property
    def parameters_count(self) -> int:
        return sum(weight.numel() for weight in self.master.parameters())

    @torch.no_grad()
    def publish(self) -> None:
        """Bring the computing copy up to date."""
        for working, weight in self._pairs():
            working.copy_(weight)

    def collect_gradients(self) -> None:
        """Move the computing copy's gradients to the learned weights."""
        for working, weight in self._pairs():
            if working.grad is not None:
                weight.grad = working.grad.float()
                working.grad = None

    def drop_gradients(self) -> None:
        self.model.zero_grad(set_to_none=True)
        self.master.zero_grad(set_to_none=True)

    def weights(self) -> dict[str, Tensor]:
        """A copy of the learned weights by name."""
        return {name: weight.detach().clone() for name, weight in self.master.named_parameters()}

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights as `weights()` gave them. Raises ValueError when they do not fit."""
        own = dict(self.master.named_parameters())
        if own.keys() != weights.keys():
            raise ValueError(f"weights named {sorted(own.keys() ^ weights.keys())[:3]}")
        for name, weight in own.items():
            if weight.shape != weights[name].shape or not bool(weights[name].isfinite().all()):
                raise ValueError(f"weight {name} has another shape or is not finite")
        for name, weight in own.items():
            weight.copy_(weights[name])
        self.publish()

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self.model is not self.master:
            yield from zip(self.model.parameters(), self.master.parameters(), strict=True)
