"""Dual prototypes of every class, exchanged beside the weights after a warm-up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedquilt.core.payload import Mean
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.losses.prototypes import (
    PrototypeWeights,
    Rounding,
    absence_score,
    class_prototypes,
    clipped_rows,
    never_sent,
    older,
    prototype_weights,
    tag_missing_labels,
    usable_classes,
)
from fedquilt.training.contribution import Contribution
from fedquilt.training.method import Local, State
from fedquilt.training.parts import DeclaredPart, per_side_mean
from fedquilt.training.privacy_settings import Privacy
from fedquilt.training.task import Task
from fedquilt.training.warm_up import WarmUpAveraging


@dataclass(frozen=True, kw_only=True)
class PrototypeAveraging(WarmUpAveraging):
    """The base of methods whose clients share mean features of absent and present samples.

    The server averages them and counts the rounds since somebody sent one. Clients receive them,
    and which classes have two that are recent enough, as ``usable``.
    """

    prototype_weights: PrototypeWeights = "counts"  # of a client in the mean
    prototype_age_limit: int = 10  # rounds a prototype is used after it was last sent

    pseudo_label_key: ClassVar[str | None] = "tags"

    @property
    def parts(self) -> Mapping[str, DeclaredPart]:
        return {"prototypes": per_side_mean("features")}

    def contributions(self, privacy: Privacy) -> Mapping[str, Contribution]:
        known = super().contributions(privacy)
        if self.prototype_weights != "counts":  # else weight times value is no sum over images
            return known
        image = Contribution(privacy.feature_clip, first_round=self.summaries_from)
        return {**known, "prototypes": image}

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        age = never_sent(task.class_count)
        return super().init_server(weights, task, survey) | {"prototype_age": age}

    def broadcast(self, server: State) -> State:
        prototypes, age = server["prototypes"], server["prototype_age"]
        usable = usable_classes(prototypes, age, self.prototype_age_limit)
        return super().broadcast(server) | {"usable": usable}

    def tagged(
        self,
        local: Local,
        view: str,
        shares: tuple[Tensor, Tensor],
        rounding: Rounding,
        *,
        positives_need_negatives: bool,
    ) -> Tensor:
        """The client's tags after more missing labels are tagged by the received prototypes.

        ``shares``, each (C,), of the entries that look absent and of those that look present.
        """
        features = local.predict(local.received["weights"], view).features
        return tag_missing_labels(
            local.state["tags"],
            absence_score(features, local.received["prototypes"]),
            ~local.data.known & local.received["usable"],
            *shares,
            rounding,
            positives_need_negatives=positives_need_negatives,
        )

    def prototypes(self, features: Tensor, local: Local) -> Mean:
        """The client's prototypes, to be sent."""
        data = local.data
        if local.feature_clip is not None:  # noise hides features of a known length
            features = clipped_rows(features, local.feature_clip)
        means, counts = class_prototypes(features, data.labels, data.known)
        return Mean(means, prototype_weights(self.prototype_weights, counts, len(data)))

    def update(self, server: State, totals: Totals) -> State:
        age = older(server["prototype_age"], totals.weight("prototypes") > 0)
        return super().update(server, totals) | {"prototype_age": age}
