"""Multi-label DermaMNIST, as in FedNCA-ML: every skin lesion alone, and some pairs."""

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

    singles: int | None = None  # canvases per class with one image; left out: one of every image
    pairs: int = 50  # canvases per pair of classes
    test_singles: int | None = None  # as singles
    test_pairs: int = 14  # the rarest class has 23 test images; 14 keeps the training part's mix
    classes: int = 7  # the first so many
    canvas: int = 56  # pixels per side
    validation: Validation = "train"  # where the published validation images go
    origin: ClassVar[Origin] = ORIGIN
    title: ClassVar[str] = "dermamnist-composites"
    side: ClassVar[int] = SIDE

    def files(self) -> list[Path]:
        return [find_file(self.root, FLAG, SIDE)]

    def originals(self, cache: Path) -> Splits:
        return MedMnist(folder=self.folder, flag=FLAG, validation=self.validation).load(cache)
