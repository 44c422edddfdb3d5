"""Multi-label MNIST (P. Li et al., 2023): one or two handwritten digits on a canvas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.published.origin import Origin
from fedquilt.data.source import Splits
from fedquilt.data.sources.composites.composites import Composites
from fedquilt.data.sources.composites.plan import Layout, rolled
from fedquilt.data.sources.mnist.files import ORIGIN, find_files
from fedquilt.data.sources.mnist.load import Mnist


@dataclass(frozen=True, kw_only=True)
class MnistComposites(Composites):
    """Digits in opposite corners of a 56 px canvas, rolled by up to 6 px right and down."""

    canvas: int = 56  # pixels per side
    origin: ClassVar[Origin] = ORIGIN
    title: ClassVar[str] = "mnist-composites"
    side: ClassVar[int] = 28

    def files(self) -> list[Path]:
        return find_files(self.root)

    def originals(self, cache: Path) -> Splits:
        return Mnist(folder=self.folder).load(cache)

    def layout(self) -> Layout:
        return Layout(pad=self.canvas - self.side, placing=rolled, single_corner="lower right")
