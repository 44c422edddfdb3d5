"""FedNCA-ML (Peng et al., Oxford, arXiv 2509.12544, 2025): one simplex frame for all clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.contrastive import RejectionForm, compaction, rejection_loss
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

CLASSIFIER = ("train_classifier", "etf_seed", "scale", "bias")  # settings of both heads
ATTENTION = ("classifier", "query", "train_query", "position_code")  # of LADM only
ADAMW = LocalTraining(lr=1e-4, betas=(0.9, 0.98), weight_decay=0.01, decay="decoupled")


@dataclass(frozen=True, kw_only=True)
class FedNCAML(WeightedAveraging):
    """Every class has one fixed vector of a simplex ETF, the same at all clients.

    It is the query of an attention that pools the class's feature from the feature map (LADM), and
    the classifier that scores it. Rejection keeps features of absent classes away from all classes;
    compaction draws features of present classes to their own. Clients are averaged equally.
    ``fedquilt predict RUN IMAGE --attention FOLDER`` draws the attention of each class.

    Deviations: all losses use annotated labels only. Scale and bias, if set, are part of the scores
    in every loss except cosines. The learning rate is constant; the authors' code warms up anew in
    every round. Biases decay like all weights, at 1e-6 a step; theirs do not. The variant
    ``released`` is the authors' code: trained vectors that start as an ETF, cosines, a hinge.
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
    head: Literal["ladm", "etf", "linear"] = "ladm"  # etf: on pooled features; linear: no ETF
    query: Literal["etf", "random"] = "etf"  # initial query of a class
    train_query: bool = False  # False: it stays fixed
    classifier: Literal["etf", "random"] = "etf"  # initial classifier vector of a class
    train_classifier: bool = False  # False: it stays fixed
    etf_seed: int | None = None  # of a random rotation of the ETF; left out: along the first axes
    position_code: bool = True  # add positional encodings to the feature map
    scale: float | None = None  # initial value of a learnt factor of all scores; left out: none
    bias: bool = False  # a learnt bias per class, initially 0
    class_reduction: Literal["mean", "sum"] = "mean"  # of cross-entropy over classes
    rejection: float = 0.01  # lambda_1: strength; the paper uses 1 for CIFAR-10
    rejection_form: RejectionForm = "log"  # hinge-top: of the most confident negatives only
    rejection_threshold: float = 0.3  # tau: probability above which a feature is rejected
    compaction: float = 1.0  # lambda_2: strength
    compaction_form: Literal["product", "cosine"] = "product"  # similarity of features
    temperature: float = 0.07  # divides cosines

    def __post_init__(self) -> None:
        if not self.temperature > 0 or min(self.rejection, self.compaction) < 0:
            raise UserError(
                "method needs temperature > 0 and rejection and compaction of 0 or more, found "
                f"{self.temperature}, {self.rejection} and {self.compaction}"
            )
        if self.head != "ladm" and (self.rejection or self.compaction):
            raise UserError(
                "method.rejection and method.compaction need a feature per class, which only the "
                f"head 'ladm' has, found {self.head!r}; set both to 0"
            )

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        names = {"ladm": (*CLASSIFIER, *ATTENTION), "etf": CLASSIFIER, "linear": ()}[self.head]
        settings = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return replace(wanted, head=self.head, head_settings=settings)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        output = local.model(batch.views[0])
        labels, known = self.supervision(batch)
        positives = known & (labels == 1)
        targets = positives.to(output.logits.dtype)
        entries = elementwise_bce(output.logits, targets, self.class_weight(local))
        average = masked_mean if self.class_reduction == "mean" else mean_of_image_sums
        loss = average(entries, known)
        if not self.rejection and not self.compaction:
            return loss
        directions, features = cast(LADMHead, local.model.head).classifier, output.per_class
        scores = directions(features)  # (B, C, C)
        if self.rejection:
            form, negatives = self.rejection_form, known & ~positives
            away = rejection_loss(form, scores, positives, negatives, self.rejection_threshold)
            loss = loss + self.rejection * away
        if self.compaction and self.compaction_form == "product":
            loss = loss + self.compaction * mean_of_image_means(compaction(scores), positives)
        elif self.compaction:
            own = compaction(directions.cosines(features) / self.temperature)
            loss = loss + self.compaction * mean_of_image_sums(own, positives)
        return loss
