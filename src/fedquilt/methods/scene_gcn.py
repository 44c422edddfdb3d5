"""Scene-GCN (Xue et al., IJCNN 2024): scene-based graph convolution for multi-label images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from fedquilt.core.payload import Gather, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.cross_entropy import asymmetric_loss, require_focus
from fedquilt.losses.scene_entropy import scene_entropy
from fedquilt.models import scenes as private
from fedquilt.models.batch_statistics import second_moments, variances
from fedquilt.models.class_names.text_vectors import HASHED
from fedquilt.models.heads.scene_gcn import SceneGCNHead
from fedquilt.models.network import Layout
from fedquilt.models.private_weights import private_weights, shared_layout
from fedquilt.models.spec import ModelSpec
from fedquilt.training.averaging import WeightedAveraging, mean_change, moved_buffers
from fedquilt.training.method import Local, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class SceneGCN(WeightedAveraging):
    """Assign images to scenes, and relate an image's labels by their co-occurrence in its scene.

    Networks are averaged; scenes are private, so every client has its own model. The server mixes
    the label co-occurrences of a scene with those of the most similar scene of every other client
    that has sent its scenes, weighted by the cosine of the prototypes. It needs each client's own
    prototypes and co-occurrences, so these cannot be summed securely.

    Deviations: co-occurrences, of annotated labels only, are sent per image of a scene; the public
    code, variant ``released``, sends counts, so large clients outweigh the cosine, and trains by
    AdamW with a tenth of the learning rate in the backbone. Centres start by k-means++ and move in
    training only; empty scenes are not matched. Label vectors come from the spelling of class
    names; the authors use GloVe (give a file).
    """

    positive_weight: PositiveWeight = "none"  # replaced by the asymmetric loss
    scenes: Literal["k-means", "linear"] = "k-means"  # linear: learnt scores, entropy loss
    scene_count: int = 6  # S: scenes per client
    width: int = 1024  # of the label attention and the graph's hidden layer
    text_encoder: str = HASHED  # of class names: also open-clip:MODEL/WEIGHTS, a folder or a file
    matrices: Literal["shares", "counts"] = "shares"  # co-occurrences per image, or raw
    pooled_variance: bool = True  # batch-norm variances of the pooled images, not the mean variance
    negative_focus: float = 4.0  # gamma-: exponent of negatives; larger: easy ones count less
    positive_focus: float = 1.0  # gamma+: exponent of positives
    margin: float = 0.05  # subtracted from the probability of a negative
    entropy_weight: float = 1.0  # of the entropy loss of linear scenes

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {
            "matrices": "counts",
            "training": {
                "batch_size": 8,
                "lr": 1e-4,
                "backbone_lr": 0.1,
                "weight_decay": 1e-4,
                "decay": "decoupled",
                "schedule": "steps",  # times 0.9 after every 4 epochs, here rounds
                "keep_optimizer": True,
            },
        }
    }

    def __post_init__(self) -> None:
        require_focus(self.negative_focus, self.positive_focus)

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        settings = ("scenes", "scene_count", "width", "text_encoder")
        chosen = {name: getattr(self, name) for name in settings}
        return replace(wanted, head="scene-gcn", head_settings=chosen)

    def shared(self, layout: Layout) -> Layout:
        return shared_layout(layout, private.SCENES)

    def broadcast(self, server: State) -> State:
        return super().broadcast(server) | {"mixed": private.mixed_scenes(server.get("scenes", {}))}

    def expected_update(self, received: State, task: Task) -> Update:
        weights: Weights = received["weights"]
        parts = super().expected_update({"weights": self._averaged(weights)}, task)
        whole = weights | private.empty_scenes(weights, self.scene_count)
        return {**parts, "scenes": self._summaries(whole)}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        return {**super().provenance, "scenes": private.IMAGES_OF_SUMMARIES}

    def initial_weights(self, local: Local) -> Weights:
        if "scenes" in local.state:
            return super().initial_weights(local)
        shared = local.received["weights"]
        return private.first_scenes(shared, self.scene_count, local.predict, local.generator)

    def loss(self, local: Local, batch: Batch) -> Tensor:
        labels, known = self.supervision(batch)
        output = local.model(batch.views[0], torch.where(known, labels, 0.0))
        weight, focus = self.class_weight(local), (self.negative_focus, self.positive_focus)
        loss = asymmetric_loss(output.logits, labels, known, weight, focus, self.margin)
        if self.scenes == "linear":
            head = cast(SceneGCNHead, local.model.head)
            loss = loss + self.entropy_weight * scene_entropy(head.scene_scores(output.features))
        return loss

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        received = self._averaged(local.received["weights"])
        parts = self.weights_update(local, self._averaged(weights), received=received)
        state = {**local.state, "scenes": private_weights(weights, private.SCENES)}
        return {**parts, "scenes": self._summaries(weights)}, state

    def _averaged(self, weights: Weights) -> Weights:
        return second_moments(weights) if self.pooled_variance else weights

    def _summaries(self, weights: Weights) -> Gather:
        return Gather(private.scene_summaries(weights, per_image=self.matrices == "shares"))

    def update(self, server: State, totals: Totals) -> State:
        buffers = moved_buffers(self._averaged(server["weights"]), totals)
        buffers = variances(buffers) if self.pooled_variance else buffers
        scenes = {**server.get("scenes", {}), **private.by_client(totals.each("scenes"))}
        return self.moved(server, mean_change(totals), buffers) | {"scenes": scenes}

    def global_weights(self, server: State) -> Weights | None:
        return None

    def client_weights(self, received: State, state: State) -> Weights:
        mixed, per_image = received.get("mixed", {}), self.matrices == "shares"
        scenes = private.with_mixed(state["scenes"], mixed, per_image=per_image)
        return {**received["weights"], **scenes}
