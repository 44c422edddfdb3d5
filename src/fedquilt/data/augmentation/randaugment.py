"""RandAugment as in FixMatch: two random operations, each applied by chance, and a cutout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fedquilt.core.errors import UserError
from fedquilt.data.augmentation.draws import rows_by_kind, to_device, uniform, uniform_on_host
from fedquilt.data.augmentation.geometry import resample, warp

GEOMETRIC = ("rotate", "shear x", "shear y", "translate x", "translate y")
STEPS = 10  # a magnitude counts tenths of an operation's full strength
GREY = 127 / 255  # fills the cutout


@dataclass(frozen=True, kw_only=True)
class RandAugment:
    """FedMLP's strong view for FixMatch: its weak view, then random operations and a cutout.

    Operations, magnitudes and the cutout are drawn per sample.
    """

    operations: int = 2  # n: operations in sequence, drawn with replacement
    magnitude: int = 10  # m: strengths are drawn from 1 to m - 1, in tenths
    share: float = 0.5  # probability that a drawn operation is applied
    square: int = 16  # side of the cutout in pixels, at most half the shorter side of the image
    horizontal_flip: float = 0.5  # probability, in the weak view
    degrees: float = 10.0  # largest rotation in the weak view, either way
    translate: float = 0.02  # largest shift in the weak view, as a share of the side

    def __post_init__(self) -> None:
        if self.operations < 0 or not 2 <= self.magnitude <= STEPS or not 0 <= self.share <= 1:
            raise UserError(
                f"randaugment needs operations >= 0, magnitude in 2..{STEPS} and share in 0..1, "
                f"found {self.operations}, {self.magnitude} and {self.share}"
            )

    @property
    def preserves_values(self) -> bool:
        return False

    def augment(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        pixels = self._weak_view(pixels, uniform(pixels, 4, generator))
        for _ in range(self.operations):
            draws = uniform_on_host(pixels, 4, generator)
            kind = (len(KINDS) * draws[:, 0]).floor()
            kind = torch.where(draws[:, 1] < self.share, kind, KINDS.index("identity"))
            level = 1 + ((self.magnitude - 1) * draws[:, 2]).floor()
            sign = torch.where(draws[:, 3] < 0.5, -1.0, 1.0)
            pixels = apply_operations(pixels, kind, level, sign)
        side = min(self.square, min(pixels.shape[2:]) // 2)
        return cut_out(pixels, uniform(pixels, 2, generator), side)

    def _weak_view(self, pixels: Tensor, draws: Tensor) -> Tensor:
        signed = 2 * draws[:, :3] - 1
        is_flipped = draws[:, 3] < self.horizontal_flip
        mirrored = torch.stack((is_flipped, torch.zeros_like(is_flipped)), 1)
        scale = torch.ones_like(draws[:, 0])
        return warp(
            pixels, self.degrees * signed[:, 0], self.translate * signed[:, 1:], scale, mirrored
        )


def apply_operations(pixels: Tensor, kind: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Apply one operation to each sample.

    Args:
        pixels: (B, channels, height, width) in 0..1.
        kind: (B,) indices into ``KINDS``; on the host, like the next two.
        level: (B,) the strength in whole tenths.
        sign: (B,) -1 or 1, the direction of a rotation, shear or translation.
    """
    strength = level / STEPS
    amounts = to_device(torch.stack((strength, strength * sign)), pixels.device)
    result = pixels.clone()
    for number, rows in rows_by_kind(kind, pixels.device).items():
        name = KINDS[number]
        if name != "identity":
            amount = amounts[int(name in GEOMETRIC)].index_select(0, rows)
            result.index_copy_(0, rows, OPERATIONS[name](pixels.index_select(0, rows), amount))
    return result


def autocontrast(pixels: Tensor) -> Tensor:
    """Stretch each channel to the full range; a constant channel is left unchanged."""
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    stretched = (pixels - low) / torch.where(high > low, high - low, 1.0)
    return torch.where(high > low, stretched, pixels)


def equalise(values: Tensor) -> Tensor:
    """Histogram equalisation of each channel; values are integers in 0..255."""
    flat = values.flatten(2)
    counts = flat.new_zeros((*flat.shape[:2], 256)).scatter_add_(2, flat, torch.ones_like(flat))
    rank = torch.where(counts > 0, torch.arange(256, device=values.device), -1)
    of_greatest = counts.gather(2, rank.amax(2, keepdim=True))
    step = (flat.shape[2] - of_greatest) // 255
    below = counts.cumsum(2) - counts
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, table.gather(2, flat), flat).view_as(values)


def posterise(values: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest bits of values in 0..255."""
    width = torch.exp2(8 - bits)[:, None, None, None]
    return (values / width).floor() * width


def solarise(values: Tensor, threshold: Tensor) -> Tensor:
    """Invert values in 0..255 at or above the threshold."""
    return torch.where(values < threshold[:, None, None, None], values, 255 - values)


def grey(pixels: Tensor) -> Tensor:
    """The luma of each pixel; for images without three channels, the mean of the channels."""
    if pixels.shape[1] != 3:
        return pixels.mean(1, keepdim=True)
    red, green, blue = (pixels[:, channel, None] for channel in range(3))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def mean_grey(pixels: Tensor) -> Tensor:
    return grey(pixels).mean((1, 2, 3), keepdim=True)


def smooth(pixels: Tensor) -> Tensor:
    """Mean of a pixel, with weight 5, and its eight neighbours; the border is left unchanged."""
    if min(pixels.shape[2:]) < 3:
        return pixels
    inner = pixels[:, :, 1:-1, 1:-1]
    mean = (9 * F.avg_pool2d(pixels, 3, 1) + 4 * inner) / 13
    result = pixels.clone()
    result[:, :, 1:-1, 1:-1] = mean
    return result


def cut_out(pixels: Tensor, centre: Tensor, side: int) -> Tensor:
    """Fill a square around ``centre``, (B, 2) shares of height and width, with grey.

    The square is moved inside the image at the top and left, and cut off at the other borders.
    """
    inside = []
    for axis, length in enumerate(pixels.shape[2:]):
        first = (centre[:, axis] * length - side / 2).clamp(min=0).floor()[:, None]
        position = torch.arange(length, device=pixels.device)
        inside.append((position >= first) & (position < first + side))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(square, GREY, pixels)


def _bytes(pixels: Tensor) -> Tensor:
    return (pixels * 255).round()


def _blend(pixels: Tensor, plain: Tensor, strength: Tensor) -> Tensor:
    """Blend pixels with ``plain``; a higher strength keeps more of the pixels."""
    kept = (0.9 * strength + 0.05)[:, None, None, None]
    return plain + kept * (pixels - plain)


def _move(name: str, pixels: Tensor, strength: Tensor) -> Tensor:
    """Rotate by up to 30 degrees, shear from the top left corner or translate by up to 0.3."""
    height, width = pixels.shape[2:]
    amount = {each: torch.zeros_like(strength) for each in GEOMETRIC} | {name: strength}
    angle = amount["rotate"] * (30 * math.pi / 180)
    shear_x = amount["shear x"] * 0.3 * height / width
    shear_y = amount["shear y"] * 0.3 * width / height
    # Whole pixels, so that a translated image stays sharp.
    shift_x = (amount["translate x"] * 0.3 * width).trunc() / width
    shift_y = (amount["translate y"] * 0.3 * height).trunc() / height
    cos, sin = angle.cos(), angle.sin()
    across = torch.stack((cos, shear_x - sin * height / width), 1)
    down = torch.stack((shear_y + sin * width / height, cos), 1)
    offset = torch.stack((shear_x + 2 * shift_x, shear_y + 2 * shift_y), 1)
    return resample(pixels, torch.stack((across, down), 1), offset[:, :, None])


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # (pixels, strength (B,)) -> pixels
    "autocontrast": lambda pixels, strength: autocontrast(pixels),
    "brightness": lambda pixels, strength: _blend(pixels, torch.zeros_like(pixels), strength),
    "colour": lambda pixels, strength: _blend(pixels, grey(pixels), strength),
    "contrast": lambda pixels, strength: _blend(pixels, mean_grey(pixels), strength),
    "equalise": lambda pixels, strength: equalise(_bytes(pixels).to(torch.int64)) / 255,
    "identity": lambda pixels, strength: pixels,
    "posterise": lambda pixels, strength: (
        posterise(_bytes(pixels), (4 * strength).floor() + 4) / 255
    ),
    "rotate": partial(_move, "rotate"),
    "sharpness": lambda pixels, strength: _blend(pixels, smooth(pixels), strength),
    "shear x": partial(_move, "shear x"),
    "shear y": partial(_move, "shear y"),
    "solarise": lambda pixels, strength: (
        solarise(_bytes(pixels), 256 - (256 * strength).floor()) / 255
    ),
    "translate x": partial(_move, "translate x"),
    "translate y": partial(_move, "translate y"),
}
KINDS = tuple(OPERATIONS)
