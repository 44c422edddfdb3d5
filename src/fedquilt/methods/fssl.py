"""FSSL (Yang et al., Medical Image Analysis 2021): federated semi-supervised learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, without
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.cross_entropy import masked_mean
from fedquilt.losses.distillation import squared_gap
from fedquilt.training.activity import Activity, RunSize, distilled
from fedquilt.training.averaging import HeadRows, WeightedAveraging, mean_change, moved_buffers
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart, head_rows_mean
from fedquilt.training.warm_up import gaussian_ramp


@dataclass(frozen=True, kw_only=True)
class FSSL(WeightedAveraging):
    """Distil the received model's prediction on another view of the image for missing labels.

    An interpretation: neither the paper's exact loss nor FedLSM's multi-label form of it could be
    verified. The paper raises the weight of annotated clients; here every client annotates some
    class, so that weight applies per class, and only to head rows.
    """

    head_rows: HeadRows = "annotated"  # weights of head rows, see ``labelled_weight``
    strength: float = 1.0  # lambda: of the consistency loss after the ramp
    ramp_rounds: int = 30  # rounds in which it grows to its full strength
    labelled_weight: float = 1.0  # rho: share of annotators in a head row; others have 1 - rho

    can_be_exclusive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 <= self.labelled_weight <= 1:
            raise UserError(f"fssl.labelled_weight must be in 0..1, found {self.labelled_weight}")

    def views(self, round_index: int) -> tuple[str, ...]:
        return ("weak", "weak")

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        if self.labelled_weight == 1:
            return {}
        # A second copy of the head, weighted by the images without an annotation of the class.
        return {"other_rows": head_rows_mean("annotated or not")}

    def activity(self, data: ClientData, state: State) -> Activity:
        return distilled(data.known) if self.strength else {}

    def suited_to(self, size: RunSize) -> Mapping[str, Any]:
        return {"ramp_rounds": min(self.ramp_rounds, size.rounds // 2)}

    def begin(self, local: Local) -> State:
        ramp = gaussian_ramp(local.round_index, 0, self.ramp_rounds)
        return {**local.state, "ramp": local.scalar(ramp)}

    def loss(self, local: Local, batch: Batch) -> Tensor:
        logits = local.model(batch.views[0]).logits
        known = self.supervision(batch)[1]
        supervised = self.supervised_loss(local, logits, batch)
        teacher = local.forward(local.received["weights"], batch.views[1]).logits
        weight: Tensor = self.strength * local.state["ramp"]
        return supervised + weight * masked_mean(squared_gap(logits, teacher), ~known)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        parts = self.weights_update(local, weights)
        if self.parts and "head" in parts:
            unannotated = (~local.data.known).sum(0)
            parts = {**parts, "other_rows": Mean(parts["head"].value, unannotated)}
        return parts, without(local.state, "ramp")

    def update(self, server: State, totals: Totals) -> State:
        change = mean_change(totals)
        if "other_rows" in totals.expected:
            rows = {name: change[name] for name in totals.expected["head"].value}
            others = totals.mean("other_rows", otherwise=rows)  # rows of classes that all annotate
            rho = self.labelled_weight
            change |= {name: rho * rows[name] + (1 - rho) * others[name] for name in rows}
        return self.moved(server, change, moved_buffers(server["weights"], totals))
