"""RandAugment as FixMatch has it: two random changes, each by chance, and a grey square."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fedquilt.core.errors import UserError
from fedquilt.data.augmentation.draws import rows_by_kind, sent, uniform, uniform_on_host
from fedquilt.data.augmentation.geometry import resample, warp

MOVES = ("rotate", "shear x", "shear y", "translate x", "translate y")
STEPS = 10  # a magnitude counts tenths of an operation's full strength
GREY = 127 / 255  # of the square


@dataclass(frozen=True, kw_only=True)
class RandAugment:
    """FedMLP's strong view for FixMatch: its weak view, then ``operations`` of ``KINDS``.

    Every sample draws its own kinds, magnitudes and square.
    """

    operations: int = 2  # n: changes one after another, drawn with replacement
    magnitude: int = 10  # m: of a change, drawn from 1 to below this, in tenths
    share: float = 0.5  # probability that a drawn change is made
    square: int = 16  # side of the grey square in pixels, at most half the canvas's shorter side
    horizontal_flip: float = 0.5  # probability, before everything else
    degrees: float = 10.0  # turn by up to this, before everything else
    translate: float = 0.02  # shift by up to this share, before everything else

    def __post_init__(self) -> None:
        if self.operations < 0 or not 2 <= self.magnitude <= STEPS or not 0 <= self.share <= 1:
            raise UserError(
                f"randaugment needs operations >= 0, magnitude in 2..{STEPS} and share in 0..1, "
                f"found {self.operations}, {self.magnitude} and {self.share}"
            )

    @property
    def only_moves(self) -> bool:
        return False

    def augment(self, pixels: Tensor, generator: torch.Generator) -> Tensor:
        pixels = self._weaken(pixels, uniform(pixels, 4, generator))
        for _ in range(self.operations):
            draws = uniform_on_host(pixels, 4, generator)
            kind = (len(KINDS) * draws[:, 0]).floor()
            kind = torch.where(draws[:, 1] < self.share, kind, KINDS.index("identity"))
            level = 1 + ((self.magnitude - 1) * draws[:, 2]).floor()
            pixels = change(pixels, kind, level, torch.where(draws[:, 3] < 0.5, -1.0, 1.0))
        side = min(self.square, min(pixels.shape[2:]) // 2)
        return cut_out(pixels, uniform(pixels, 2, generator), side)

    def _weaken(self, pixels: Tensor, draws: Tensor) -> Tensor:
        signed = 2 * draws[:, :3] - 1
        across = draws[:, 3] < self.horizontal_flip
        mirrored = torch.stack((across, torch.zeros_like(across)), 1)
        scale = torch.ones_like(draws[:, 0])
        return warp(
            pixels, self.degrees * signed[:, 0], self.translate * signed[:, 1:], scale, mirrored
        )


def change(pixels: Tensor, kind: Tensor, level: Tensor, sign: Tensor) -> Tensor:
    """Each sample after its ``kind`` of change, a place in ``KINDS``.

    Args:
        pixels: (B, channels, height, width) in 0..1.
        kind: (B,), on the host as the next two.
        level: (B,) whole numbers of tenths of the full strength.
        sign: (B,) -1 or 1, the direction of a turn, a shear or a shift.
    """
    strength = level / STEPS
    amounts = sent(torch.stack((strength, strength * sign)), pixels.device)
    result = pixels.clone()
    for number, rows in rows_by_kind(kind, pixels.device).items():
        name = KINDS[number]
        if name != "identity":
            amount = amounts[int(name in MOVES)].index_select(0, rows)
            result.index_copy_(0, rows, CHANGES[name](pixels.index_select(0, rows), amount))
    return result


def autocontrast(pixels: Tensor) -> Tensor:
    """Stretch each channel to the full range; a channel of one value stays."""
    low, high = pixels.amin((2, 3), keepdim=True), pixels.amax((2, 3), keepdim=True)
    stretched = (pixels - low) / torch.where(high > low, high - low, 1.0)
    return torch.where(high > low, stretched, pixels)


def equalise(values: Tensor) -> Tensor:
    """Spread each channel's values, whole numbers of 0..255, as evenly as whole steps allow."""
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
    """Invert values in 0..255 that are not below the threshold."""
    return torch.where(values < threshold[:, None, None, None], values, 255 - values)


def grey(pixels: Tensor) -> Tensor:
    """The brightness of each pixel as people see it; without three colours, the channels' mean."""
    if pixels.shape[1] != 3:
        return pixels.mean(1, keepdim=True)
    red, green, blue = (pixels[:, channel, None] for channel in range(3))
    return 0.299 * red + 0.587 * green + 0.114 * blue


def mean_grey(pixels: Tensor) -> Tensor:
    return grey(pixels).mean((1, 2, 3), keepdim=True)


def smooth(pixels: Tensor) -> Tensor:
    """Mean of a pixel, counted five times, and its eight neighbours; the border stays."""
    if min(pixels.shape[2:]) < 3:
        return pixels
    inner = pixels[:, :, 1:-1, 1:-1]
    mean = (9 * F.avg_pool2d(pixels, 3, 1) + 4 * inner) / 13
    result = pixels.clone()
    result[:, :, 1:-1, 1:-1] = mean
    return result


def cut_out(pixels: Tensor, centre: Tensor, side: int) -> Tensor:
    """A grey square about ``centre``, (B, 2) shares of height and width, pushed in at the start."""
    inside = []
    for axis, length in enumerate(pixels.shape[2:]):
        first = (centre[:, axis] * length - side / 2).clamp(min=0).floor()[:, None]
        place = torch.arange(length, device=pixels.device)
        inside.append((place >= first) & (place < first + side))
    square = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    return torch.where(square, GREY, pixels)


def _bytes(pixels: Tensor) -> Tensor:
    return (pixels * 255).round()


def _blend(pixels: Tensor, plain: Tensor, strength: Tensor) -> Tensor:
    """Pixels mixed with a plainer version of themselves; the stronger, the more of them is left."""
    kept = (0.9 * strength + 0.05)[:, None, None, None]
    return plain + kept * (pixels - plain)


def _move(name: str, pixels: Tensor, strength: Tensor) -> Tensor:
    """Turned by up to 30 degrees, or sheared from the top left corner or shifted by up to 0.3."""
    height, width = pixels.shape[2:]
    moved = {each: torch.zeros_like(strength) for each in MOVES} | {name: strength}
    angle = moved["rotate"] * (30 * math.pi / 180)
    shear_x = moved["shear x"] * 0.3 * height / width
    shear_y = moved["shear y"] * 0.3 * width / height
    # Whole pixels, so that a shifted picture stays sharp.
    shift_x = (moved["translate x"] * 0.3 * width).trunc() / width
    shift_y = (moved["translate y"] * 0.3 * height).trunc() / height
    cos, sin = angle.cos(), angle.sin()
    across = torch.stack((cos, shear_x - sin * height / width), 1)
    down = torch.stack((shear_y + sin * width / height, cos), 1)
    offset = torch.stack((shear_x + 2 * shift_x, shear_y + 2 * shift_y), 1)
    return resample(pixels, torch.stack((across, down), 1), offset[:, :, None])


CHANGES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {  # of pixels by a strength, (B,)
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
KINDS = tuple(CHANGES)
