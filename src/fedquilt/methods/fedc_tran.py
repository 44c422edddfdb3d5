"""FedC-Tran: C-Tran (Lanchantin et al., CVPR 2021) under FedAvg, the baseline of FedLGT."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.label_states import draw_revealed, hidden_label_bce, label_states
from fedquilt.models.spec import ModelSpec
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local, State


@dataclass(frozen=True, kw_only=True)
class FedCTran(WeightedAveraging):
    """A transformer over image patches and labels, trained to predict hidden labels.

    In training, random labels of an image are revealed to the model, and it predicts the others.
    At inference none are revealed. So it learns which labels occur together. The loss is a sum over
    hidden labels, not a mean; learning rate and gradient clipping are chosen for that.

    Deviations: an unannotated label is never revealed and never in the loss, even if it was drawn.
    A client that annotates a single class therefore reveals nothing useful: it learns from the
    draws that hide its label. The embeddings of labels and states are trained, as in C-Tran;
    FedLGT's public code fixes those of the states here too.
    """

    training: LocalTraining = LocalTraining(epochs=5, batch_size=16, lr=1e-4, clip_norm=10.0)
    positive_weight: PositiveWeight = "none"  # w_c, from annotated entries only
    told_share: float = 0.75  # the largest share of an image's labels that is revealed
    layers: int = 3  # of the transformer
    attention_heads: int = 4  # of each layer
    dropout: float = 0.1  # in the transformer

    def __post_init__(self) -> None:
        if not 0 <= self.told_share < 1:
            raise UserError(
                "method.told_share must be at least 0 and below 1, so that some labels stay "
                f"hidden; found {self.told_share}"
            )

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        settings = {
            "layers": self.layers,
            "attention_heads": self.attention_heads,
            "dropout": self.dropout,
        }
        return replace(wanted, head="c-tran", head_settings=settings)

    def sample_noise(self, batch_size: int, class_count: int, generator: torch.Generator) -> Tensor:
        return draw_revealed(batch_size, class_count, self.told_share, generator)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return self.step_loss(local, batch)[0]

    def step_loss(self, local: Local, batch: Batch) -> tuple[Tensor, State]:
        assert batch.drawn is not None
        images = batch.views[0]
        labels, known = self.supervision(batch)
        revealed = label_states(labels, known & batch.drawn)
        states = self.calibrated(local, images, revealed)
        logits = local.model(images, states).logits
        weight = self.class_weight(local)
        loss = hidden_label_bce(logits, labels, known, states, weight)
        return loss, self.counted(local, (states != revealed).sum())

    def counted(self, local: Local, hidden: Tensor) -> State:
        """The client's state after a step in which so many revealed labels were hidden again."""
        return local.state

    def calibrated(self, local: Local, images: Tensor, states: Tensor) -> Tensor:
        """The label states that the model receives."""
        return states
