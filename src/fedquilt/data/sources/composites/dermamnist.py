"""Multi-label DermaMNIST, as in FedNCA-ML: every skin lesion on its own, and some pairs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.published.origin import Origin
from fedquilt.data.source import Splits
from fedquilt.data.sources.composites.composites import Composites
from fedquilt.data.sources.medmnist.files import ORIGIN, find_file
from fedquilt.data.sources.medmnist.load import MedMnist, Validation

FLAG, SIDE = "dermamnist", 28


@dataclass(frozen=True, kw_only=True)
class DermaMnistComposites(Composites):
    """All single lesions, so that rare classes stay rare, and 50 canvases per pair of classes."""

    singles: int | None = None  # canvases per class with one image; None: one for every image
    pairs: int = 50  # canvases per pair of classes
    test_singles: int | None = None  # like singles, for the test split
    test_pairs: int = 14  # keeps the training split's share of pairs (the rarest class has 23)
    classes: int = 7  # number of classes, the first ones
    canvas: int = 56  # pixels per side
    validation: Validation = "train"  # the published validation images train, or are dropped
    origin: ClassVar[Origin] = ORIGIN
    title: ClassVar[str] = "dermamnist-composites"
    side: ClassVar[int] = SIDE

    def files(self) -> list[Path]:
        return [find_file(self.root, FLAG, SIDE)]

    def originals(self, cache: Path) -> Splits:
        return MedMnist(folder=self.folder, flag=FLAG, validation=self.validation).load(cache)
