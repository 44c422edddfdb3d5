"""Mosaics of scikit-learn's handwritten digits: a small multi-label data set without download."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedquilt.core.errors import UserError
from fedquilt.core.seeding import seed_for
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Source, Splits

SIDE = 8  # pixels of a digit
Pixels = NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class DigitsMosaic(Source):
    """Distinct digits in the cells of a black canvas; an image's labels are its digits."""

    classes: int = 5  # digits 0 to classes - 1, from 2 to 10
    canvas: int = 16  # pixels per side, from 16
    train: int = 500  # images
    test: int = 800  # images
    digits_per_image: tuple[int, int] = (1, 3)  # least and most; all counts are equally likely
    jitter: int = 0  # pixels by which a digit may leave its cell; overlaps make the task harder
    seed: int = 0

    def __post_init__(self) -> None:
        least, most = self.digits_per_image
        room = min(self.classes, (self.canvas // SIDE) ** 2)
        for field, value, low, high in (
            ("classes", self.classes, 2, 10),
            ("canvas", self.canvas, 2 * SIDE, 1024),
            ("train", self.train, 1, 10**6),
            ("test", self.test, 1, 10**6),
            ("digits_per_image[0]", least, 0, room),
            ("digits_per_image[1]", most, max(1, least), room),
            ("jitter", self.jitter, 0, SIDE // 2),
        ):
            if not low <= value <= high:
                raise UserError(
                    f"digits-mosaic: {field} is {value}; expected {low} to {high} (a canvas "
                    f"holds at most one digit per class and one per {SIDE} x {SIDE} cell)"
                )

    def load(self, cache: Path) -> Splits:
        """Compose both splits from separate digits; ``cache`` is not used."""
        halves = _digit_halves(self.classes, self.seed)
        return Splits(
            train=self._compose("train", self.train, halves[0]),
            test=self._compose("test", self.test, halves[1]),
        )

    def _compose(self, split: str, count: int, digits: list[Pixels]) -> MultiLabelDataset:
        random = _random(self.seed, split)
        images = np.zeros((count, 1, self.canvas, self.canvas), np.uint8)
        labels = np.zeros((count, self.classes), np.uint8)
        least, most = self.digits_per_image
        for row in range(count):
            present = random.permutation(self.classes)[: _between(random, least, most)]
            labels[row, present] = 1
            for digit, (top, left) in zip(present, self._corners(random)):
                drawn = digits[digit][_between(random, 0, len(digits[digit]) - 1)]
                region = images[row, 0, top : top + SIDE, left : left + SIDE]
                np.maximum(region, drawn, out=region)
        return MultiLabelDataset(
            images=torch.from_numpy(images),
            labels=torch.from_numpy(labels),
            known=torch.ones(labels.shape, dtype=torch.bool),
            classes=tuple(f"digit {digit}" for digit in range(self.classes)),
            ids=tuple(f"{split}-{row:05d}" for row in range(count)),
        )

    def _corners(self, random: np.random.RandomState) -> list[tuple[int, int]]:
        """A random position of a digit in every cell, as (top, left); cells in random order."""
        across = self.canvas // SIDE
        cell = self.canvas // across
        starts = cell * np.stack(np.divmod(random.permutation(across**2), across), 1)
        moves = _between(random, -self.jitter, cell - SIDE + self.jitter, starts.shape)
        corners = np.clip(starts + moves, 0, self.canvas - SIDE)
        return [(int(top), int(left)) for top, left in corners]


def _digit_halves(classes: int, seed: int) -> tuple[list[Pixels], list[Pixels]]:
    """The 8 x 8 digits of each class for train and test; no digit is in both."""
    from sklearn.datasets import load_digits

    source = load_digits()
    pixels = np.rint(source.images * (255 / 16)).astype(np.uint8)
    random = _random(seed, "halves")
    train, test = [], []
    for digit in range(classes):
        of_class = pixels[source.target == digit]
        order = random.permutation(len(of_class))
        middle = len(order) // 2
        train.append(of_class[order[:middle]])
        test.append(of_class[order[middle:]])
    return train, test


def _random(seed: int, purpose: str) -> np.random.RandomState:
    """NumPy guarantees that this generator's numbers never change, so images are reproducible."""
    return np.random.RandomState(seed_for("digits-mosaic", seed, purpose) % 2**32)


def _between(
    random: np.random.RandomState, least: int, most: int, shape: tuple[int, ...] = ()
) -> NDArray[np.int64]:
    # Without the dtype, the numbers would depend on the platform's default integer.
    return np.asarray(random.randint(least, most + 1, shape, dtype=np.int64))
