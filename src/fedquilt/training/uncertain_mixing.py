"""MixUp of a client's most uncertain images with its most certain ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.batches import Batch, Pool
from fedquilt.data.client_data import ClientData
from fedquilt.losses.pseudo_labels import Entropy, by_uncertainty, uncertainty
from fedquilt.losses.soft_targets import beta_share, mix
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, State

IMAGES_MIXED = "images mixed"


@dataclass(frozen=True, kw_only=True)
class UncertainMixing(WeightedAveraging):
    """The base of methods that train uncertain images in mixtures with certain ones.

    A step draws images that are not uncertain, and as many uncertain as certain ones beside them,
    which are mixed by a share that all mixtures of the step have in common.
    """

    entropy: Literal["binary", "one_sided", "random"] = "binary"  # ranks images; one_sided, for
    # several labels per image: -p ln p only; random: any order, the paper's ablation "without UE"
    uncertain_images: int = 500  # n_h: the most uncertain, if the client has enough
    certain_images: int = 2000  # n_l: the least uncertain; if too few, both shrink equally
    mixed_images: int = 4  # mixtures among the ``training.batch_size`` images of a step
    mixing_strength: float = 0.1  # lambda_UDE: weight of the loss on mixtures; 0: no mixtures
    mixing_concentration: float = 0.2  # alpha: mixing shares are drawn from Beta(alpha, alpha)

    def __post_init__(self) -> None:
        counts = (self.uncertain_images, self.certain_images, self.mixed_images)
        if min(counts) < 0 or self.mixed_images >= self.training.batch_size:
            raise UserError(
                "method.uncertain_images, certain_images and mixed_images must be at least 0, the "
                f"last below training.batch_size, {self.training.batch_size}; found {counts}"
            )

    @property
    def exclusive(self) -> bool:
        """Whether every image has one class, by a softmax over all classes."""
        return self.one_class_per_image

    def ranking(self, local: Local) -> Tensor:
        """The uncertainty of every image under the received model, (N,)."""
        known = local.data.known
        if self.entropy == "random":
            return torch.rand(len(known), generator=local.generator).to(known.device)
        kind: Entropy = "softmax" if self.exclusive else self.entropy
        return uncertainty(kind, local.predict(local.received["weights"], "plain").logits, known)

    def pools(self, local: Local) -> tuple[Pool, ...]:
        size, views = self.training.batch_size, self.views(local.round_index)
        sizes = (self.uncertain_images, self.certain_images)
        uncertain, certain, between = by_uncertainty(self.ranking(local), *sizes)  # D_h, D_l, D_m
        count = min(self.mixed_images, len(uncertain), len(certain))
        if count == 0 or self.mixing_strength == 0:
            return (Pool(size, views),)
        beside = [Pool(count, ("plain",), rows, whole=True) for rows in (uncertain, certain)]
        return (Pool(size - count, views, torch.cat((certain, between))), *beside)

    def sample_noise(self, batch_size: int, class_count: int, generator: torch.Generator) -> Tensor:
        return beta_share(self.mixing_concentration, generator)

    def with_mixtures(self, state: State, batch: Batch) -> tuple[Tensor, State]:
        """Return the batch's images, then the mixtures of those beside it, which are counted."""
        if not batch.beside or batch.drawn is None:
            return batch.views[0], state
        uncertain, certain = (each.views[0] for each in batch.beside)
        images = torch.cat((batch.views[0], mix(uncertain, certain, batch.drawn)))
        return images, {**state, "mixed": state.get("mixed", 0) + len(uncertain)}

    def activity(self, data: ClientData, state: State) -> Activity:
        mixed = {IMAGES_MIXED: int(state.get("mixed", 0))} if self.mixing_strength else {}
        return {**super().activity(data, state), **mixed}

    def why_idle(self, what: str, size: RunSize) -> str:
        wanted = f"{self.uncertain_images} uncertain and {self.certain_images} certain images"
        none_left = (
            f"with {wanted} wanted, none is left of {max(size.images)}; set "
            "method.uncertain_images and method.certain_images closer to each other"
        )
        return super().why_idle(what, size) or (none_left if what == IMAGES_MIXED else "")
