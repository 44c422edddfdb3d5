"""Privacy: which noise clients add to what they send, and for how much of it a budget pays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from fedquilt.core.errors import UserError

Unit: TypeAlias = Literal["image", "patient"]
UNITS: tuple[Unit, ...] = ("image", "patient")


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy for adding or removing one unit of a client's data."""

    epsilon: float | None = None  # spent by a client over all rounds, at most; None: no noise
    delta: float = 1e-5  # below 1 / the units of the largest client
    unit: Unit = "image"  # what one unit is; a patient may have several images
    images_per_patient: int = 1  # unit "patient": further images of a patient are left out
    training: bool = False  # DP-SGD: noise in every step, so that all weights are covered
    clip: float = 1.0  # of the gradient of one unit
    parts: tuple[str, ...] = ()  # small parts that leave with noise; weights are not covered
    releases: int = 1  # of each part, spread over the rounds; in between it is not sent
    feature_clip: float = 1.0  # of an image's features, in parts made from them

    def __post_init__(self) -> None:
        if self.epsilon is None and (self.training or self.parts):
            raise UserError("privacy.training and privacy.parts need a budget: set privacy.epsilon")
        if self.epsilon is not None and self.training == bool(self.parts):
            raise UserError(
                "privacy.epsilon pays either for privacy.training (DP-SGD: all weights) or for "
                "privacy.parts (small parts; the weights leave without noise); set one of them"
            )
        for name in ("epsilon", "clip", "feature_clip"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"privacy.{name} must be positive, found {value:g}")
        if not 0 < self.delta < 1:
            raise UserError(f"privacy.delta must be between 0 and 1, found {self.delta:g}")
        for name in ("images_per_patient", "releases"):
            if getattr(self, name) < 1:
                raise UserError(f"privacy.{name} must be 1 or more, found {getattr(self, name)}")
        if self.unit == "image" and self.images_per_patient != 1:
            raise UserError(
                "privacy.images_per_patient is for privacy.unit = 'patient', and the unit is an "
                "image"
            )

    @property
    def adds_noise(self) -> bool:
        return self.epsilon is not None

    @property
    def budget(self) -> float:
        """The epsilon, where noise is added."""
        assert self.epsilon is not None
        return self.epsilon


NO_NOISE = Privacy()
