"""The C-Tran head (Lanchantin et al., CVPR 2021): a transformer over positions and labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.losses.label_states import NEGATIVE, POSITIVE
from fedquilt.models.class_names.text_vectors import LEARNED, PROMPT, text_vectors
from fedquilt.models.feature_map import MapHead
from fedquilt.models.network import Output


class CTranHead(MapHead):
    """Every label attends to the image and to the other labels.

    The layers process a token for each position of the feature map and one for each label: its
    vector, plus the vector of its state unless that is unknown. A label's logit is its output row
    times its own token. There is no positional encoding.
    """

    labels: Tensor  # (C, d)
    negative: Tensor  # (d,)
    positive: Tensor  # (d,)

    def __init__(
        self, width: int, class_count: int, layers: int, attention_heads: int, dropout: float
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, attention_heads, width, dropout, batch_first=True)
            for _ in range(layers)
        )
        self.output = nn.Linear(width, class_count)

    def learn_vectors(self) -> None:
        class_count, width = self.output.weight.shape
        bound = 1 / math.sqrt(width)
        for name, shape in (
            ("labels", (class_count, width)),
            ("negative", (width,)),
            ("positive", (width,)),
        ):
            vectors = torch.empty(shape).uniform_(-bound, bound)
            self.register_parameter(name, nn.Parameter(vectors))

    def fix_vectors(self, labels: Tensor, negative: Tensor, positive: Tensor) -> None:
        """Set fixed vectors, as buffers: stored with the weights, they need no encoder again."""
        self.fixed_buffers = ("labels", "negative", "positive")
        self.register_buffer("labels", labels)
        self.register_buffer("negative", negative)
        self.register_buffer("positive", positive)

    def forward(self, feature_map: Tensor, states: Tensor | None = None) -> Output:
        """``states`` are (B, C), see ``losses/label_states.py``; all unknown by default."""
        positions = feature_map.flatten(2).transpose(1, 2)  # (B, height * width, d)
        tokens = self.norm(torch.cat([positions, self.label_tokens(positions.shape[0], states)], 1))
        for layer in self.layers:
            tokens = layer(tokens)
        label_features = tokens[:, positions.shape[1] :]  # (B, C, d)
        logits = (label_features * self.output.weight).sum(2) + self.output.bias
        return Output(positions.mean(1), logits, label_features)

    def label_tokens(self, count: int, states: Tensor | None) -> Tensor:
        """(B, C, d)."""
        tokens = self.labels.expand(count, -1, -1)
        if states is None:
            return tokens
        is_negative, is_positive = (states == value for value in (NEGATIVE, POSITIVE))
        known = is_negative[..., None] * self.negative + is_positive[..., None] * self.positive
        return tokens + known


def build_c_tran(
    feature_count: int,
    class_count: int,
    seed: int,
    *,
    text_encoder: str = LEARNED,
    prompt: str = PROMPT,
    swapped_states: bool = False,
    finer_names: str = "",
    join: str = "concat",
    layers: int = 3,
    attention_heads: int = 4,
    dropout: float = 0.1,
    class_names: Sequence[str] = (),
) -> CTranHead:
    """Build the head; its layers use torch's default generator, which the caller has seeded.

    Args:
        text_encoder: makes the fixed vectors of label names and states. With ``"learned"``, or
            without class names, the vectors are trained.
        swapped_states: use the word "positive" for a negative label, as in FedLGT's public code.
        finer_names: where to read finer names that replace the class names, if anywhere.
        join: how the finer names of a class become one vector, see :func:`text_vectors`.
    """
    _check(feature_count, layers, attention_heads, dropout)
    head = CTranHead(feature_count, class_count, layers, attention_heads, dropout)
    if text_encoder == LEARNED or not class_names:
        head.learn_vectors()
        return head
    vectors = text_vectors(text_encoder, class_names, prompt, feature_count, finer_names, join)
    negative, positive = vectors[class_count:].flip(0) if swapped_states else vectors[class_count:]
    head.fix_vectors(vectors[:class_count].clone(), negative.clone(), positive.clone())
    return head


def _check(width: int, layers: int, attention_heads: int, dropout: float) -> None:
    if layers < 1 or attention_heads < 1 or not 0 <= dropout < 1:
        raise UserError(
            "a C-Tran head needs layers and attention_heads of at least 1 and a dropout in [0, 1); "
            f"found {layers}, {attention_heads} and {dropout}"
        )
    if width % attention_heads:
        raise UserError(
            f"a C-Tran head divides the backbone's {width} features among its attention_heads; "
            f"{width} is not a multiple of {attention_heads}"
        )
