"""The head of Scene-GCN: label features and a graph convolution on the scene's label graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedquilt.core.errors import UserError, nearest
from fedquilt.models.class_names.text_files import FILES, read_text_vectors
from fedquilt.models.class_names.text_vectors import HASHED, PROMPT, fit_width, text_vectors
from fedquilt.models.feature_map import MapHead
from fedquilt.models.heads.layers.label_attention import LabelAttention
from fedquilt.models.heads.layers.label_graph import LabelGraph, label_adjacency
from fedquilt.models.network import Output
from fedquilt.models.scenes import nearest_centre, updated_centres

KINDS = ("k-means", "linear")
LABEL_WIDTH = 300  # of the paper's GloVe vectors
LABEL_LENGTH = 6.0  # about the length of GloVe vectors; attention hardly learns with shorter ones


class SceneGCNHead(MapHead):
    """Assign each image to a scene, and relate its label features along that scene's label graph.

    The scenes are buffers, like batch norm's statistics: in training, a forward pass that is given
    the labels first updates them, without gradient. So they are stored with the weights.
    """

    labels: Tensor  # (C, e), fixed
    matrices: Tensor  # (S, C, C): co-occurrence counts of the labels
    counts: Tensor  # (S,): images counted so far
    centres: Tensor  # (S, d), of k-means

    def __init__(
        self, feature_count: int, labels: Tensor, scene_count: int, width: int, kind: str
    ) -> None:
        super().__init__()
        class_count = len(labels)
        self.fixed_buffers = ("labels",)
        self.register_buffer("labels", labels)
        self.register_buffer("matrices", torch.zeros(scene_count, class_count, class_count))
        self.register_buffer("counts", torch.zeros(scene_count))
        self.scores = None
        if kind == "linear":
            self.scores = nn.Linear(feature_count, scene_count, bias=False)
        else:
            self.register_buffer("centres", torch.zeros(scene_count, feature_count))
        self.attention = LabelAttention(feature_count, labels.shape[1], width)
        self.graph = LabelGraph(feature_count, width)
        self.join = nn.Linear(2 * feature_count, feature_count)
        bound = 1 / math.sqrt(feature_count)
        self.weight = nn.Parameter(torch.empty(class_count, feature_count).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(class_count))

    def forward(self, feature_map: Tensor, present: Tensor | None = None) -> Output:
        """``present`` (B, C) is 1 for annotated positives; without it no scene is updated."""
        tokens = feature_map.flatten(2).transpose(1, 2)  # (B, T, d)
        context = tokens.mean(1)
        scene = self.scene_of(context)
        if self.training and present is not None:
            self._count(context.detach(), scene, present)
        adjacency = label_adjacency(self.matrices).index_select(0, scene)
        features = self.attention(tokens, self.labels)
        related = self.graph(features, adjacency)
        joined = torch.tanh(self.join(torch.cat([features, related], dim=2)))
        return Output(context, (joined * self.weight).sum(2) + self.bias, features)

    def scene_of(self, context: Tensor) -> Tensor:
        """Return the scene of each image, (B,)."""
        if self.scores is not None:
            return self.scene_scores(context).argmax(1)
        return nearest_centre(context.detach(), self.centres)

    def scene_scores(self, context: Tensor) -> Tensor:
        """Return the scores (B, S) of learnt scenes."""
        if self.scores is None:
            raise ValueError("scenes by k-means have centres, not scores")
        return F.linear(context, self.scores.weight)

    def _count(self, context: Tensor, scene: Tensor, present: Tensor) -> None:
        scenes = torch.arange(len(self.counts), device=scene.device)
        members = (scene[:, None] == scenes).to(self.counts.dtype)  # (B, S)
        pairs = present[:, :, None] * present[:, None]  # (B, C, C)
        with torch.no_grad(), torch.autocast(scene.device.type, enabled=False):
            if self.scores is None:
                new = updated_centres(self.centres, self.counts, context.float(), members)
                self.centres.copy_(new)
            self.matrices += torch.tensordot(members, pairs, dims=([0], [0]))
            self.counts += members.sum(0)


def build_scene_gcn(
    feature_count: int,
    class_count: int,
    seed: int,
    *,
    scenes: str = "k-means",
    scene_count: int = 6,
    width: int = 1024,
    text_encoder: str = HASHED,
    class_names: Sequence[str],
) -> SceneGCNHead:
    """Build the head; its layers use torch's default generator, which the caller has seeded."""
    if scenes not in KINDS:
        raise UserError(f"head 'scene-gcn' has no scenes by {scenes!r}{nearest(scenes, KINDS)}")
    if scene_count < 1 or width < 1:
        raise UserError(
            "head 'scene-gcn' needs scene_count and width of at least 1, found "
            f"{scene_count} and {width}"
        )
    labels = label_vectors(text_encoder, class_names)
    return SceneGCNHead(feature_count, labels, scene_count, width, scenes)


def label_vectors(text_encoder: str, class_names: Sequence[str]) -> Tensor:
    """(C, 300). A file, for example of word vectors, needs vectors of the class names only."""
    path = Path(text_encoder)
    if path.suffix in FILES:
        vectors = fit_width(read_text_vectors(path, class_names), LABEL_WIDTH)
    else:
        vectors = text_vectors(text_encoder, class_names, PROMPT, LABEL_WIDTH)
    return LABEL_LENGTH * vectors[: len(class_names)]
