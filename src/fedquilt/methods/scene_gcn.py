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
from fedquilt.models import scenes as client_scenes
from fedquilt.models.class_names.text_vectors import HASHED
from fedquilt.models.heads.scene_gcn import SceneGCNHead
from fedquilt.models.private_weights import private_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.training.method import Local, State
from fedquilt.training.pooled_statistics import PooledStatisticsAveraging
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class SceneGCN(PooledStatisticsAveraging):
    """Assign images to scenes, and relate an image's labels by their co-occurrence in its scene.

    Networks are averaged; scenes are private, so every client has its own model. The server mixes a
    scene's label co-occurrences with those of the most similar scene of every other client, by the
    cosine of the prototypes. It needs each client's own, so these cannot be summed securely.

    Deviations: co-occurrences, of annotated labels only, are sent per image of a scene; the public
    code, variant ``released``, sends counts, so large clients outweigh the cosine, and trains by
    AdamW with a tenth of the learning rate in the backbone. Centres start by k-means++ and move in
    training only. Label vectors come from the spelling of class names, not GloVe (give a file).
    """

    positive_weight: PositiveWeight = "none"  # replaced by the asymmetric loss
    scenes: Literal["k-means", "linear"] = "k-means"  # linear: learnt scores, entropy loss
    scene_count: int = 6  # S: scenes per client
    width: int = 1024  # of the label attention and the graph's hidden layer
    text_encoder: str = HASHED  # of class names: also open-clip:MODEL/WEIGHTS, a folder or a file
    matrices: Literal["shares", "counts"] = "shares"  # co-occurrences per image, or raw
    negative_focus: float = 4.0  # gamma-: exponent of negatives; larger: easy ones count less
    positive_focus: float = 1.0  # gamma+: exponent of positives
    margin: float = 0.05  # subtracted from the probability of a negative
    entropy_weight: float = 1.0  # of the entropy loss of linear scenes

    private: ClassVar[tuple[str, ...]] = client_scenes.SCENES
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

    def broadcast(self, server: State) -> State:
        mixed = client_scenes.mixed_scenes(server.get("scenes", {}))
        return super().broadcast(server) | {"mixed": mixed}

    def expected_update(self, received: State, task: Task) -> Update:
        weights: Weights = received["weights"]
        scenes = Gather(client_scenes.empty_summaries(weights, self.scene_count))
        return {**super().expected_update(received, task), "scenes": scenes}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        return {**super().provenance, "scenes": client_scenes.IMAGES_OF_SUMMARIES}

    def initial_weights(self, local: Local) -> Weights:
        if "scenes" in local.state:
            return super().initial_weights(local)
        shared = local.received["weights"]
        return client_scenes.first_scenes(shared, self.scene_count, local.predict, local.generator)

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
        scenes = client_scenes.scene_summaries(weights, per_image=self.matrices == "shares")
        state = {**local.state, "scenes": private_weights(weights, self.private)}
        return {**self.weights_update(local, weights), "scenes": Gather(scenes)}, state

    def update(self, server: State, totals: Totals) -> State:
        scenes = {**server.get("scenes", {}), **client_scenes.by_client(totals.each("scenes"))}
        return super().update(server, totals) | {"scenes": scenes}

    def client_weights(self, received: State, state: State) -> Weights:
        mixed, per_image = received.get("mixed", {}), self.matrices == "shares"
        scenes = client_scenes.with_mixed(state["scenes"], mixed, per_image=per_image)
        return {**received["weights"], **scenes}
