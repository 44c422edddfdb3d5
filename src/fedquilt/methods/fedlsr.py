"""FedLSR (Jiang et al., CIKM 2022): local self-regularisation against noisy labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from fedquilt.core.payload import Update
from fedquilt.core.tree import Weights, without
from fedquilt.data.batches import Batch
from fedquilt.losses.cross_entropy import elementwise_bce, masked_mean
from fedquilt.losses.distillation import jensen_shannon, mixed_logits
from fedquilt.methods.fedavg import FedAvg
from fedquilt.training.method import Local, State


@dataclass(frozen=True, kw_only=True)
class FedLSR(FedAvg):
    """Train on the sharpened mean prediction of two views, and keep the two predictions close.

    Unannotated labels are treated as negatives by design: hidden positives are label noise.

    Deviations: sigmoids instead of the paper's softmax; the paper's optional entropy term is left
    out, as in the FedMLP authors' port. The divergence covers "present" and "absent". The variant
    ``ported`` is that port: it applies the sigmoid twice before the cross-entropy, which confines
    probabilities to 0.5..0.731, and its divergence covers "present" only.
    """

    sharpening: float = 2.0  # the mixture's logits are multiplied by this
    self_distillation: float = 0.4  # gamma: weight of the divergence between views, after the ramp
    ramp_rounds: int = 40  # t_w: rounds over which that weight grows from 0
    contrast: float = 3.0  # logits are multiplied by this before the views are compared
    both_sides: bool = True  # the divergence covers absent as well as present
    double_sigmoid: bool = False  # the port's cross-entropy: probabilities used as logits

    can_be_exclusive: ClassVar[bool] = False
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "ported": {"double_sigmoid": True, "both_sides": False}
    }

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "weak")

    def begin(self, local: Local) -> State:
        return {**local.state, "strength": local.scalar(self.strength(local.round_index))}

    def sample_noise(self, batch_size: int, class_count: int, generator: torch.Generator) -> Tensor:
        return torch.rand((), generator=generator)  # Beta(1, 1)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        first, second = (local.model(images).logits for images in batch.views)
        labels, known = self.supervision(batch)
        assert batch.drawn is not None
        sharp = self.sharpening * mixed_logits(first, second, batch.drawn)
        targets = torch.where(known, labels, torch.zeros_like(labels))
        scores = torch.sigmoid(sharp) if self.double_sigmoid else sharp
        supervised = elementwise_bce(scores, targets, self.class_weight(local))
        apart = jensen_shannon(
            self.contrast * first, self.contrast * second, both_sides=self.both_sides
        )
        strength: Tensor = local.state["strength"]
        return masked_mean(supervised, known) + strength * apart.mean()

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        return self.weights_update(local, weights), without(local.state, "strength")

    def strength(self, round_index: int) -> float:
        """The weight of the divergence in this round."""
        ramp = min(round_index / self.ramp_rounds, 1.0) if self.ramp_rounds > 0 else 1.0
        return self.self_distillation * ramp
