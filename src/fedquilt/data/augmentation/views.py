"""Views of a batch: the named augmentations, a recipe's choice of them, and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.data.augmentation.degradation import KINDS, degrade
from fedquilt.data.augmentation.draws import to_device, uniform, uniform_on_host
from fedquilt.data.augmentation.geometry import mirror, warp
from fedquilt.data.augmentation.randaugment import RandAugment


class View(Protocol):
    """A random map of pixels in 0..1 to pixels in 0..1, drawn per sample."""

    @property
    def preserves_values(self) -> bool:
        """Whether pixels only change places; then uint8 images can be augmented directly."""
        ...

    def augment(self, pixels: Tensor, generator: torch.Generator) -> Tensor: ...


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Random augmentation, drawn per sample; the defaults are FedMLP's training view.

    Photometric changes come first, then one resampling; pixels from outside the image are black.
    An augmentation that is set to zero is skipped.
    """

    horizontal_flip: float = 0.5  # probability
    vertical_flip: float = 0.0  # probability
    degrees: float = 10.0  # largest rotation, either way
    translate: float = 0.02  # largest shift, as a share of the width and of the height
    scale: tuple[float, float] = (1.0, 1.0)  # range of the zoom factor
    affine_share: float = 1.0  # probability of rotation, shift and zoom together
    brightness: float = 0.0  # largest change, as a share of the full range, either way
    brightness_share: float = 1.0  # probability
    degrade_share: float = 0.0  # probability of one of median blur, Gaussian blur, noise
    noise_variance: tuple[float, float] = (5.0, 30.0)  # range, for pixels in 0..255

    def __post_init__(self) -> None:
        for name in (
            *("horizontal_flip", "vertical_flip", "translate", "affine_share"),
            *("brightness", "brightness_share", "degrade_share"),
        ):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"augmentation.{name} must be in 0..1, found {getattr(self, name)}")
        for name in ("scale", "noise_variance"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise UserError(
                    f"augmentation.{name} must be two positive numbers in ascending order, found "
                    f"({low}, {high})"
                )

    @property
    def preserves_values(self) -> bool:
        return not (self._is_brightened or self.degrade_share or self._is_warped)

    @property
    def _is_brightened(self) -> bool:
        return bool(self.brightness and self.brightness_share)

    @property
    def _is_warped(self) -> bool:
        moves = self.degrees or self.translate or self.scale != (1.0, 1.0)
        return bool(moves and self.affine_share)

    def augment(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        if self._is_brightened:
            pixels = self._brighten(pixels, generator)
        if self.degrade_share:
            pixels = self._degrade(pixels, generator)
        if self._is_warped:
            return self._warp(pixels, generator)
        for axis, share in ((3, self.horizontal_flip), (2, self.vertical_flip)):
            if share:
                pixels = mirror(pixels, uniform(pixels, 1, generator)[:, 0] < share, axis)
        return pixels

    def _brighten(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        draws = uniform(pixels, 2, generator)
        amount = (2 * draws[:, 0] - 1) * self.brightness * (draws[:, 1] < self.brightness_share)
        return (pixels + amount[:, None, None, None]).clamp_(0, 1)

    def _degrade(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        draws = uniform_on_host(pixels, 4, generator)
        low, high = self.noise_variance
        deviation = (low + (high - low) * draws[:, 0]).sqrt() / 255
        noise = torch.randn(pixels.shape, generator=generator, device=generator.device)
        # One of three kinds with equal probability, then the window size of a blur.
        kind = (3 * draws[:, 1]).floor().clamp(max=2) * 2
        kind = torch.where(kind < KINDS - 1, kind + (draws[:, 2] < 0.5), kind)
        kind = torch.where(draws[:, 3] < self.degrade_share, kind, -1)
        scale = to_device(deviation, pixels.device)[:, None, None, None]
        return degrade(pixels, kind, noise.to(pixels.device).mul_(scale))

    def _warp(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        draws = uniform(pixels, 7, generator)
        signed = (2 * draws[:, :3] - 1) * (draws[:, 3:4] < self.affine_share)
        scale = torch.ones_like(draws[:, 4])
        if self.scale != (1.0, 1.0):
            low, high = self.scale
            drawn = low + (high - low) * draws[:, 4]
            scale = torch.where(draws[:, 3] < self.affine_share, drawn, scale)
        flips = torch.stack(
            (draws[:, 5] < self.horizontal_flip, draws[:, 6] < self.vertical_flip), 1
        )
        return warp(
            pixels, self.degrees * signed[:, 0], self.translate * signed[:, 1:], scale, flips
        )


VIEWS: dict[str, View] = {
    "plain": Augmentation(horizontal_flip=0.0, degrees=0.0, translate=0.0),
    "flip": Augmentation(degrees=0.0, translate=0.0),  # FedLSM's weak view
    "weak": Augmentation(),  # FedMLP's only view
    "strong": Augmentation(  # FedLSM's strong view
        vertical_flip=0.5,
        degrees=15.0,
        translate=0.1,
        scale=(0.9, 1.1),
        affine_share=0.85,
        brightness=0.2,
        brightness_share=0.75,
        degrade_share=0.7,
    ),
    "randaugment": RandAugment(),  # FedMLP's strong view, for FedFixMatch
}


def find_view(name: str) -> View:
    """The named view; raise a ``UserError`` if there is none."""
    if name not in VIEWS:
        raise UserError(f"unknown view {name!r}{nearest(name, VIEWS)}")
    return VIEWS[name]


@dataclass(frozen=True, kw_only=True)
class Views:
    """The weak and the strong view of a recipe: digits must not be mirrored, skin lesions may be.

    Each is the name of a predefined view (plain, flip, weak, strong, randaugment) or a custom
    ``Augmentation``.
    """

    weak: str | Augmentation = "weak"
    strong: str | Augmentation = "strong"

    def __post_init__(self) -> None:
        for chosen in (self.weak, self.strong):
            if isinstance(chosen, str):
                find_view(chosen)


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """How stored pixels become a network's input: views and normalisation."""

    views: Views
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def view(self, name: str) -> View:
        """The view for a role: weak, strong or plain."""
        if name == "plain":
            return find_view("plain")
        if name not in ("weak", "strong"):
            raise UserError(f"a method requested the view {name!r}; expected weak, strong or plain")
        chosen: str | Augmentation = getattr(self.views, name)
        return find_view(chosen) if isinstance(chosen, str) else chosen


def make_view(
    images: Tensor,
    view: View,
    mean: Sequence[float],
    std: Sequence[float],
    generator: torch.Generator,
) -> Tensor:
    """Augment and normalise a batch (B, channels, height, width) to float32.

    Images are uint8, or float in 0..1. Random numbers are drawn on the generator's device: a CPU
    generator gives the same view on every device, a CUDA generator saves the copy.
    """
    if view.preserves_values:
        return normalise(view.augment(images, generator), mean, std)
    return _standardise(view.augment(_pixels(images.contiguous()), generator), mean, std)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Scale pixels to 0..1, subtract the mean and divide by the standard deviation."""
    return _standardise(_pixels(images), mean, std)


def _pixels(images: Tensor) -> Tensor:
    return images / 255 if images.dtype == torch.uint8 else images.to(torch.float32)


def _standardise(pixels: Tensor, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    return (pixels - _column(tuple(mean), pixels.device)).div_(_column(tuple(std), pixels.device))


@lru_cache(maxsize=64)
def _column(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Values per channel, shaped to broadcast over pixels; cached to save the copy to a GPU."""
    with torch.inference_mode(False):  # cached tensors are also used outside inference mode
        return torch.tensor(values, device=device).view(-1, 1, 1)
