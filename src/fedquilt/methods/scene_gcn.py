"""Scene-GCN (Xue et al., IJCNN 2024): scene-based graph convolution for multi-label images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, cast

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather, PerClient, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights, as_branch, from_branch
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.cross_entropy import asymmetric_loss
from fedquilt.losses.scene_entropy import scene_entropy
from fedquilt.models.batch_statistics import second_moments, variances
from fedquilt.models.class_names.text_vectors import HASHED
from fedquilt.models.heads.scene_gcn import SceneGCNHead
from fedquilt.models.network import Layout
from fedquilt.models.private_weights import private_weights, shared_layout
from fedquilt.models.scenes import (
    CENTRES,
    SCENES,
    empty_scenes,
    initial_centres,
    mixed_matrices,
    pair_images,
    scene_images,
    scene_summaries,
    with_mixed,
)
from fedquilt.models.spec import ModelSpec
from fedquilt.training.averaging import WeightedAveraging, mean_change, moved_buffers
from fedquilt.training.method import Local, State
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task


@dataclass(frozen=True, kw_only=True)
class SceneGCN(WeightedAveraging):
    """Sort images into scenes, and relate the labels of an image as they go together in its scene.

    Everybody's network is averaged; scenes are each client's own, so every client has a model of
    its own. The server adds to the label co-occurrences of a scene those of the most similar
    scene, by the cosine of their prototypes, of every other client it has ever heard of. It sees
    the prototypes and co-occurrences of each client, which so cannot be summed securely.

    Deviations: co-occurrences are sent per image of the scene and only told whether there are
    any; in the public code, the variant ``released``, they are raw counts, by which large clients
    outweigh the cosine. They are counted from annotated labels only. Centres start by k-means++
    and move in training only; empty scenes are not matched. Label vectors know the spelling of
    class names; the authors' are GloVe's (name a file of them). The paper trains with AdamW, a
    kept optimiser and a tenth of the learning rate in the backbone, which cannot be set here.
    """

    positive_weight: PositiveWeight = "none"  # the asymmetric loss takes its place
    scenes: Literal["k-means", "linear"] = "k-means"  # linear: by learnt scores, with entropy loss
    scene_count: int = 6  # S: scenes a client sorts its images into
    width: int = 1024  # of the label attention, and of the graph's hidden layer
    text_encoder: str = HASHED  # of class names: also open-clip:MODEL/WEIGHTS, a folder or a file
    matrices: Literal["shares", "counts"] = "shares"  # co-occurrences are sent per image, or raw
    pooled_variance: bool = True  # batch norm's variances as of pooled images, not their mean
    negative_focus: float = 4.0  # gamma-: how fast easy negatives cost less
    positive_focus: float = 1.0  # gamma+: likewise for positives
    margin: float = 0.05  # by which a negative's probability is lowered
    entropy_weight: float = 1.0  # of the entropy loss that linear scenes have

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"released": {"matrices": "counts"}}

    def __post_init__(self) -> None:
        if any(focus != 0 and focus < 1 for focus in (self.negative_focus, self.positive_focus)):
            raise UserError(
                "method.negative_focus and method.positive_focus must be 0, or 1 and more, found "
                f"{self.negative_focus} and {self.positive_focus}"
            )

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        settings = ("scenes", "scene_count", "width", "text_encoder")
        chosen = {name: getattr(self, name) for name in settings}
        return replace(wanted, head="scene-gcn", head_settings=chosen)

    def shared(self, layout: Layout) -> Layout:
        return shared_layout(layout, SCENES)

    def broadcast(self, server: State) -> State:
        mixed = mixed_matrices(server.get("scenes", {}))
        own = {from_branch(name): {"matrices": matrices} for name, matrices in mixed.items()}
        return super().broadcast(server) | {"mixed": PerClient(own, newcomer={})}

    def expected_update(self, received: State, task: Task) -> Update:
        weights: Weights = received["weights"]
        parts = super().expected_update({"weights": self._sent(weights)}, task)
        return {**parts, "scenes": self._told(weights | empty_scenes(weights, self.scene_count))}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        def images(data: ClientData, state: State) -> Tensor:
            return scene_images(state.get("scenes", {}), len(data))

        def pairs(data: ClientData, state: State) -> Tensor:
            return pair_images(state.get("scenes", {}), len(data))

        scenes: Provenance = {"prototypes": images, "matrices": pairs, "used": images}
        return {**super().provenance, "scenes": scenes}

    def initial_weights(self, local: Local) -> Weights:
        if "scenes" in local.state:
            return self.client_weights(local.received, local.state)
        shared: Weights = local.received["weights"]
        weights = shared | empty_scenes(shared, self.scene_count)
        if CENTRES in weights:
            features = local.predict(weights, "plain").features
            weights[CENTRES] = initial_centres(features, self.scene_count, local.generator)
        return weights

    def loss(self, local: Local, batch: Batch) -> Tensor:
        labels, known = self.supervision(batch)
        output = local.model(batch.views[0], torch.where(known, labels, 0.0))
        weight = local.state["positive_weight"]
        focus = (self.negative_focus, self.positive_focus)
        loss = asymmetric_loss(output.logits, labels, known, weight, focus, self.margin)
        if self.scenes == "linear":
            head = cast(SceneGCNHead, local.model.head)
            loss = loss + self.entropy_weight * scene_entropy(head.scene_scores(output.features))
        return loss

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        received = {"weights": self._sent(local.received["weights"])}
        parts = self.weights_update(replace(local, received=received), self._sent(weights))
        state = {**local.state, "scenes": private_weights(weights, SCENES)}
        return {**parts, "scenes": self._told(weights)}, state

    def _sent(self, weights: Weights) -> Weights:
        return second_moments(weights) if self.pooled_variance else weights

    def _told(self, weights: Weights) -> Gather:
        return Gather(scene_summaries(weights, per_image=self.matrices == "shares"))

    def update(self, server: State, totals: Totals) -> State:
        buffers = moved_buffers(self._sent(server["weights"]), totals)
        if self.pooled_variance:
            buffers = variances(buffers)
        heard = {as_branch(name): each for name, each in totals.each("scenes").items()}
        scenes = {**server.get("scenes", {}), **heard}
        return self.moved(server, mean_change(totals), buffers) | {"scenes": scenes}

    def global_weights(self, server: State) -> Weights | None:
        return None

    def client_weights(self, received: State, state: State) -> Weights:
        scenes: Weights = state["scenes"]
        if received.get("mixed"):  # nothing before the client has first reported
            matrices = received["mixed"]["matrices"]
            scenes = with_mixed(scenes, matrices, per_image=self.matrices == "shares")
        return {**received["weights"], **scenes}
