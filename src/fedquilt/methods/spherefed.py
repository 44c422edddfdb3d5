"""SphereFed (Dong et al., ECCV 2022): hyperspherical federated learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Sum, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.cross_entropy import masked_bce, masked_mean
from fedquilt.models.calibration import class_moments, ridge_rows
from fedquilt.models.heads.sphere import MIDDLE, on_sphere, scores_of
from fedquilt.models.spec import ModelSpec
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

ROWS = "head.weight"
MOST_IMAGES = 2.0**20  # of a client: the range of sums over its images


@dataclass(frozen=True, kw_only=True)
class SphereFed(WeightedAveraging):
    """Train features on the unit sphere for one fixed head of orthonormal rows.

    Scores are fitted to labels by squared error. In the last round of a run nothing is trained:
    clients send ``squares`` and ``products`` (sums over features and labels) instead of weights,
    and the server computes the head from them in closed form, by ridge regression.

    Deviations: labels are masked per class, also in the closed form. Two positives cannot both
    score 1 on orthonormal rows; ``target`` sets the value to fit, and with ``fit`` set to
    cross-entropy a score only has to be on the right side of one half. The strength of the ridge
    and the scale are our choices. In the last round clients still run their steps, and discard the
    result.
    """

    positive_weight: PositiveWeight = "none"  # w_c, from annotated entries only
    target: Literal["multihot", "scaled"] = "multihot"  # 1, or 1 / sqrt(positives of the image)
    fit: Literal["squares", "cross-entropy"] = "squares"  # loss of scores in training
    scale: float = 16.0  # of scores in the cross-entropy; a score of one half has logit 0
    calibrate: bool = True  # FFC: use the last round for the closed form, unless it is the only one
    ridge: float = 1.0  # lambda of the closed form; all features have norm 1

    def __post_init__(self) -> None:
        if not self.ridge > 0 or not self.scale > 0:
            found = f"{self.ridge} and {self.scale}"
            raise UserError(f"method.ridge and method.scale must be positive, found {found}")

    @property
    def plans_by_round_count(self) -> bool:
        return self.calibrate or super().plans_by_round_count

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        return replace(wanted, head="sphere")

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        # A single round trains: there would be nothing to calibrate.
        rounds_left = torch.tensor(max(task.round_count, 2))
        return super().init_server(weights, task, survey) | {"rounds_left": rounds_left}

    def broadcast(self, server: State) -> State:
        is_last = self.calibrate and int(server["rounds_left"]) <= 1
        return super().broadcast(server) | ({"calibrating": torch.ones(())} if is_last else {})

    def expected_update(self, received: State, task: Task) -> Update:
        if "calibrating" not in received:
            return super().expected_update(received, task)
        classes, features = received["weights"][ROWS].shape
        return {
            "squares": Sum(torch.zeros(classes, features, features, dtype=torch.float64)),
            "products": Sum(torch.zeros(classes, features, dtype=torch.float64)),
        }

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        # Both or none: squares without products would reveal that the class has no positives.
        sums: dict[str, Provenance] = {"squares": "sides", "products": "sides"}
        return {**super().provenance, **(sums if self.calibrate else {})}

    @property
    def ranges(self) -> Mapping[str, float]:
        return {**super().ranges, "squares": MOST_IMAGES, "products": MOST_IMAGES}  # norms are 1

    def loss(self, local: Local, batch: Batch) -> Tensor:
        scores = scores_of(local.model(batch.views[0]).logits)
        labels, known = self.supervision(batch)
        if self.fit == "cross-entropy":
            logits = self.scale * (scores - MIDDLE)
            return masked_bce(logits, labels, known, self.class_weight(local))
        positives = known & (labels == 1)
        share = positives.sum(1, keepdim=True).clamp(min=1).rsqrt()  # 1 / sqrt(m)
        targets = positives * (share if self.target == "scaled" else torch.ones_like(share))
        weights = torch.where(positives, self.class_weight(local), 1.0)
        return masked_mean(weights * (scores - targets).square(), known)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        if "calibrating" not in local.received:
            return super().finish(local, weights, steps)
        features = on_sphere(local.predict(local.received["weights"], "plain").features)
        data = local.data
        known = data.known if self.unannotated == "skip" else torch.ones_like(data.known)
        squares, products = class_moments(features, data.positives(), known)
        return {"squares": Sum(squares), "products": Sum(products)}, local.state

    def update(self, server: State, totals: Totals) -> State:
        left = {"rounds_left": server["rounds_left"] - 1}
        if "squares" not in totals.expected:
            return super().update(server, totals) | left
        squares, products = totals.sum("squares"), totals.sum("products")
        rows = ridge_rows(squares, products, self.ridge, server["weights"][ROWS])
        return {**server, "weights": {**server["weights"], ROWS: rows}} | left
