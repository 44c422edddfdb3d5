"""FedFixMatch: FixMatch (Sohn et al., NeurIPS 2020) inside FedAvg, a baseline of FedMLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.cross_entropy import elementwise_bce, masked_mean
from fedquilt.losses.pseudo_labels import is_confident
from fedquilt.losses.soft_targets import make_targets
from fedquilt.training.activity import LABELS_FILLED_IN, Activity, RunSize
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, State

FILLED_IN = "filled_in"  # of the client's state: pseudo-labels used in this round


@dataclass(frozen=True, kw_only=True)
class FedFixMatch(WeightedAveraging):
    """Confident predictions of missing labels on a weak view are pseudo-labels of a strong view.

    The model in training is its own teacher. A prediction is confident above the threshold or
    below 1 minus it. As published for FedMLP, an image counts only if all of its missing labels
    are confident, which few images satisfy if many labels are missing.

    Deviations: a short last batch counts in full. FedMLP's strong view is ``randaugment`` (set
    ``views.strong``), FedLSM's is ``strong``. The variant ``fedlsm`` averages head rows over
    annotators, as that paper does; the paper does not give its thresholds.
    """

    threshold: float = 0.8  # tau: the probability above which a prediction is confident
    gate: Literal["sample", "entry"] = "sample"  # must be confident: all of an image, or an entry
    strength: float = 1.0  # lambda_u: weight of the loss on the strong view

    can_be_exclusive: ClassVar[bool] = True
    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fedlsm": {"head_rows": "annotated"}}

    def __post_init__(self) -> None:
        if not 0.5 <= self.threshold <= 1:
            raise UserError(
                f"method.threshold must be in 0.5..1, found {self.threshold}: below 0.5 a "
                "prediction would be confident of both present and absent"
            )

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "strong")

    def begin(self, local: Local) -> State:
        return {**local.state, FILLED_IN: local.scalar(0.0)}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        return self.step_loss(local, batch)[0]

    def step_loss(self, local: Local, batch: Batch) -> tuple[Tensor, State]:
        weak, strong = (local.model(images).logits for images in batch.views)
        supervised = self.supervised_loss(local, weak, batch)
        if self.one_class_per_image:  # an unlabelled image gets its most probable class
            limits = (0.0, self.threshold)
            winner = make_targets("single", batch.labels, batch.known, weak, limits)
            gated, entries = winner.is_pseudo & (winner.targets == 1), -F.logsigmoid(strong)
        else:
            pseudo_labels = (weak.detach() > 0).to(strong.dtype)
            gated = self.gated(weak, self.supervision(batch)[1])
            entries = elementwise_bce(strong, pseudo_labels)
        state = {**local.state, FILLED_IN: local.state.get(FILLED_IN, 0) + gated.sum()}
        return supervised + self.strength * masked_mean(entries, gated), state

    def gated(self, logits: Tensor, known: Tensor) -> Tensor:
        """The missing labels that get a pseudo-label, (B, C) bool."""
        confident = is_confident(logits, self.threshold)
        if self.gate == "sample":
            confident = (confident | known).all(1, keepdim=True)
        return confident & ~known

    def activity(self, data: ClientData, state: State) -> Activity:
        return {LABELS_FILLED_IN: int(state.get(FILLED_IN, 0))} if self.strength else {}

    def why_idle(self, what: str, size: RunSize) -> str:
        if not size.gaps:
            return super().why_idle(what, size)
        limits = f"above {self.threshold:g} or below {1 - self.threshold:g}"
        if self.gate == "sample":
            return (
                f"no image had all of its missing labels ({size.missing_per_image:.1f} on average) "
                f"predicted {limits}; set method.gate to 'entry', or method.threshold lower"
            )
        return f"no missing label was predicted {limits}; set method.threshold lower"

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        """An image with several missing labels rarely has all of them confident."""
        return {"gate": "entry"} if size.missing_per_image >= 2 else {}
