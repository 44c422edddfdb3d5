"""FedNCA-ML (Peng et al., Oxford, arXiv 2509.12544, 2025): one simplex frame for all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.contrastive import compaction, hinge_rejection, most_confident, rejection
from fedquilt.losses.cross_entropy import (
    elementwise_bce,
    masked_mean,
    mean_of_image_means,
    mean_of_image_sums,
)
from fedquilt.models.heads.ladm import LADMHead
from fedquilt.models.spec import ModelSpec
from fedquilt.training.averaging import WeightedAveraging, Weighting
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Local

CLASSIFIER = ("train_classifier", "etf_seed", "scale", "bias")  # fields that the heads share
ATTENTION = ("classifier", "query", "train_query", "position_code")  # and those of LADM alone
ADAMW = LocalTraining(lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01, decay="decoupled")


@dataclass(frozen=True, kw_only=True)
class FedNCAML(WeightedAveraging):
    """Every class has one fixed vector of a simplex ETF, the same at all clients.

    As a query it draws the class's own feature out of the feature map by attention (LADM); as a
    classifier it scores that feature. Features of absent classes are kept from looking like any
    class (rejection), those of present ones are drawn to their own class (compaction). The server
    averages clients equally. ``fedquilt predict RUN IMAGE --attention FOLDER`` draws where each
    class looks.

    Deviations: all losses contain annotated labels only. Scale and bias, where wanted, are part of
    the scores in every loss except cosines. The learning rate is constant; the authors' code warms
    up anew in every round. Biases decay as all weights do, at 1e-6 a step; theirs do not. The
    variant "released" is the authors' code: ETF as a starting point only, cosines, a hinge.
    """

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {
            "train_query": True,
            "train_classifier": True,
            "position_code": False,
            "scale": 10.0,
            "bias": True,
            "rejection_form": "hinge-top",
            "compaction_form": "cosine",
            "class_reduction": "sum",
        }
    }

    training: LocalTraining = ADAMW  # how a client trains in a round
    positive_weight: PositiveWeight = "none"  # w_c, from annotated entries only
    weighting: Weighting = "uniform"  # of clients, for everything but head rows
    head: Literal["ladm", "etf", "linear"] = "ladm"  # etf: on pooled features; linear: plain
    query: Literal["etf", "random"] = "etf"  # what a class's query starts as
    train_query: bool = False  # else it stays what it is
    classifier: Literal["etf", "random"] = "etf"  # what a class's direction starts as
    train_classifier: bool = False  # else it stays what it is
    etf_seed: int | None = None  # turns the ETF; without one it lies along the first axes
    position_code: bool = True  # tell attention where each feature lies
    scale: float | None = None  # start of a learnt factor of all scores; none: no factor
    bias: bool = False  # a learnt bias per class, from 0
    class_reduction: Literal["mean", "sum"] = "mean"  # of cross-entropy, over an image's classes
    rejection: float = 0.01  # lambda_1: strength; the paper has 1 for CIFAR-10
    rejection_form: Literal["log", "hinge", "hinge-top"] = "log"  # top: the likeliest negatives
    rejection_threshold: float = 0.3  # tau: probability above which a feature is rejected
    compaction: float = 1.0  # lambda_2: strength
    compaction_form: Literal["product", "cosine"] = "product"  # what features are compared by
    temperature: float = 0.07  # what cosines are divided by

    def __post_init__(self) -> None:
        if not self.temperature > 0 or min(self.rejection, self.compaction) < 0:
            raise UserError(
                "method.temperature must be positive, method.rejection and method.compaction 0 or "
                f"more; found {self.temperature}, {self.rejection} and {self.compaction}"
            )
        if self.head != "ladm" and (self.rejection or self.compaction):
            raise UserError(
                "method.rejection and method.compaction compare a feature per class, which only "
                f"the head 'ladm' has, found {self.head!r}; set both to 0"
            )

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        names = {"ladm": (*CLASSIFIER, *ATTENTION), "etf": CLASSIFIER, "linear": ()}[self.head]
        settings = {name: getattr(self, name) for name in names}
        given = {name: value for name, value in settings.items() if value is not None}
        return replace(wanted, head=self.head, head_settings=given)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        output = local.model(batch.views[0])
        labels, believed = self.supervision(batch)
        positives = believed & (labels == 1)
        targets = positives.to(output.logits.dtype)
        entries = elementwise_bce(output.logits, targets, local.state["positive_weight"])
        average = masked_mean if self.class_reduction == "mean" else mean_of_image_sums
        loss = average(entries, believed)
        if not self.rejection and not self.compaction:
            return loss
        directions, found = cast(LADMHead, local.model.head).classifier, output.per_class
        scores = directions(found)  # (B, C, C)
        if self.rejection:
            loss = loss + self.rejection * self._rejected(scores, positives, believed & ~positives)
        if self.compaction and self.compaction_form == "product":
            loss = loss + self.compaction * mean_of_image_means(compaction(scores), positives)
        elif self.compaction:
            own = compaction(directions.cosines(found) / self.temperature)
            loss = loss + self.compaction * mean_of_image_sums(own, positives)
        return loss

    def _rejected(self, scores: Tensor, positives: Tensor, negatives: Tensor) -> Tensor:
        if self.rejection_form == "log":
            return mean_of_image_means(rejection(scores, self.rejection_threshold), negatives)
        chosen = negatives
        if self.rejection_form == "hinge-top":
            chosen = most_confident(scores, negatives, positives.sum())
        return mean_of_image_sums(hinge_rejection(scores, self.rejection_threshold), chosen)
