"""Multi-label CIFAR-10 (P. Li et al., 2023): one or two photographs on a canvas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.published.origin import Origin
from fedquilt.data.source import Splits
from fedquilt.data.sources.cifar10.files import ORIGIN, find_files
from fedquilt.data.sources.cifar10.load import Cifar10
from fedquilt.data.sources.composites.composites import Composites


@dataclass(frozen=True, kw_only=True)
class Cifar10Composites(Composites):
    """Photographs in opposite corners of a 64 px canvas, shifted by up to 7 px to the centre."""

    origin: ClassVar[Origin] = ORIGIN
    title: ClassVar[str] = "cifar10-composites"
    side: ClassVar[int] = 32

    def files(self) -> list[Path]:
        return find_files(self.root)

    def originals(self, cache: Path) -> Splits:
        return Cifar10(folder=self.folder).load(cache)
