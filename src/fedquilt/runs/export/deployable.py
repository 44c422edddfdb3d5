"""Deployable: uint8 pixels -> logit and probabilities, as one module that can be exported."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fedquilt.core.version import VERSION
from fedquilt.models.network import Network
from fedquilt.runs.model_json import Card, model_spec
from fedquilt.runs.trained_models import TrainedModels

INPUT = "image"


class Deployable(nn.Module):
    """The network between normalisation and calibration, so that a user needs neither.

    Buffers have long names: one called ``mean`` collides with an operation's output in ONNX.
    """

    pixel_mean: Tensor
    pixel_std: Tensor
    platt_slope: Tensor
    platt_intercept: Tensor

    def __init__(self, network: Network, card: Card) -> None:
        super().__init__()
        spec, lines = model_spec(card), calibration_lines(card)
        self.network = network
        self.register_buffer("pixel_mean", torch.tensor(spec.mean).view(-1, 1, 1))
        self.register_buffer("pixel_std", torch.tensor(spec.std).view(-1, 1, 1))
        slopes, intercepts = zip(*((1.0, 0.0) if line is None else line for line in lines))
        self.register_buffer("platt_slope", torch.tensor(slopes))
        self.register_buffer("platt_intercept", torch.tensor(intercepts))
        self.is_calibrated = any(line is not None for line in lines)

    @property
    def outputs(self) -> tuple[str, ...]:
        calibrated = ("calibrated",) if self.is_calibrated else ()
        return ("logit", "probability", *calibrated)

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        """``image`` is (B, channels, height, width) uint8, decoded as in training."""
        pixels = (image.to(torch.float32) / 255 - self.pixel_mean) / self.pixel_std
        logit = self.network(pixels).logits
        if not self.is_calibrated:
            return logit, torch.sigmoid(logit)
        calibrated = torch.sigmoid(self.platt_slope * logit + self.platt_intercept)
        return logit, torch.sigmoid(logit), calibrated


@dataclass(frozen=True, eq=False)
class Exported:
    """One model to export, and what is written beside it."""

    module: Deployable
    card: Card  # of this model alone, under the name "global"
    facts: dict[str, str]  # for the metadata of the file

    @property
    def image_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.card["image_shape"]
        return channels, height, width

    @property
    def head(self) -> str:
        return str(self.card["model"]["head"])

    def example(self, batch_size: int) -> Tensor:
        """Random pixels; the same for the same batch size."""
        generator = torch.Generator().manual_seed(batch_size)
        shape = (batch_size, *self.image_shape)
        return torch.randint(0, 256, shape, generator=generator).to(torch.uint8)


def to_export(models: TrainedModels, client: str | None) -> Exported:
    card = single_card(models, client)
    module = Deployable(models.network(client), card).eval()
    return Exported(module, card, _facts(models, client, card))


def single_card(models: TrainedModels, client: str | None) -> Card:
    """Describe one of the models as if it were the only one, without its client."""
    name, card = models.model_name(client), models.card
    annotated = card["annotated"].get(name, card["classes"])
    served = {key: value for key, value in card.get("served", {}).items() if key != "rounds"}
    rounds = card.get("served", {}).get("rounds", {})  # by client, whose names stay here
    if name in rounds:
        served["round"] = rounds[name]
    own = {"files": {"global": "model.safetensors"}, "annotated": {"global": annotated}}
    return card | own | ({"served": served} if served else {})


def calibration_lines(card: Card) -> list[tuple[float, float] | None]:
    """Slope and intercept of every class's calibrated logit; None where none was fitted."""
    fitted: dict[str, Any] = card.get("calibration", {}).get("classes", {})
    stored = [fitted.get(name, {}) for name in card["classes"]]
    return [(each["slope"], each["intercept"]) if "slope" in each else None for each in stored]


def _facts(models: TrainedModels, client: str | None, card: Card) -> dict[str, str]:
    """Everything that a graph cannot hold, as text."""
    content = {
        "fedquilt": VERSION,
        "model": models.hash_of(client),
        "classes": card["classes"],
        "annotated": card["annotated"]["global"],
        "input": "uint8, (batch, channels, height, width), decoded as in 'decoding'",
        "decoding": card["decoding"],
        "normalisation": "inside the graph",
        "threshold": card["threshold"],
        "thresholds": card.get("thresholds"),
        "calibration": card.get("calibration"),
        "not_calibrated": [
            name for name, line in zip(card["classes"], calibration_lines(card)) if line is None
        ],
        "notice": "research software, not a medical device",
    }
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in content.items()
    }
