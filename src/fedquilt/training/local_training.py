"""LocalTraining: how a client trains in a round; settings that decide rankings are explicit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from fedquilt.core.errors import UserError
from fedquilt.core.settings import added


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """Settings of local training; weight decay is never implicit."""

    epochs: int = 1  # passes over the client's data in a round
    steps: int | None = None  # optimizer steps in a round, instead of epochs
    batch_size: int = 32  # images per step
    optimizer: Literal["adam", "sgd"] = "adam"  # new in every round, unless kept
    lr: float = 3e-4  # learning rate
    betas: tuple[float, float] = (0.9, 0.999)  # of Adam
    momentum: float = 0.0  # of SGD
    weight_decay: float = 0.0  # strength; it decides rankings, see docs/guides/weight_decay.md
    decay: Literal["coupled", "decoupled"] = "coupled"  # coupled: Adam with L2; decoupled: AdamW
    decay_unannotated_rows: bool = True  # False: no decay of head rows of unannotated classes
    backbone_lr: float = added(1.0)  # learning rate of the backbone, as a share of lr
    # of the learning rate, over rounds; steps: times lr_factor after every lr_rounds
    schedule: Literal["constant", "cosine", "steps"] = "constant"
    lr_factor: float = added(0.9)  # of the schedule "steps"
    lr_rounds: int = added(4)  # of the schedule "steps"
    clip_norm: float | None = None  # of the gradient, after the method's correction
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: autocast
    keep_optimizer: bool = False  # keep the optimizer's state between rounds

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "lr", "backbone_lr", "lr_factor", "lr_rounds"):
            if not 0 < getattr(self, name) < math.inf:
                raise UserError(f"training.{name} must be positive, found {getattr(self, name)}")
        if self.steps is not None and self.steps <= 0:
            raise UserError(f"training.steps must be positive or left out, found {self.steps}")
        if not 0 <= self.weight_decay < math.inf:
            raise UserError(f"training.weight_decay must be >= 0, found {self.weight_decay}")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise UserError(f"training.betas must be in [0, 1), found {self.betas}")
        if not 0 <= self.momentum < 1:
            raise UserError(f"training.momentum must be in [0, 1), found {self.momentum}")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise UserError(
                f"training.clip_norm must be positive or left out, found {self.clip_norm}"
            )
        if self.optimizer == "sgd" and self.decay == "decoupled" and self.weight_decay > 0:
            raise UserError("training.decay = 'decoupled' is for adam; sgd has coupled decay only")

    def images_drawn(self, images: int) -> int:
        """How many images a client with ``images`` trains on in a round, repetitions included."""
        return self.steps * self.batch_size if self.steps else self.epochs * images

    def lr_at(self, round_index: int, round_count: int) -> float:
        if self.schedule == "constant":
            return self.lr
        if self.schedule == "steps":
            return self.lr * self.lr_factor ** (round_index // self.lr_rounds)
        return self.lr * 0.5 * (1.0 + math.cos(math.pi * round_index / max(round_count, 1)))
