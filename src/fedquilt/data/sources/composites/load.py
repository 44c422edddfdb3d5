"""The composites of three data sets: one or two of their images on a canvas."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.data.published.origin import Origin
from fedquilt.data.source import Splits
from fedquilt.data.sources.cifar10 import files as cifar10_files
from fedquilt.data.sources.cifar10.load import Cifar10
from fedquilt.data.sources.composites.composites import Composites
from fedquilt.data.sources.composites.plan import Layout, rolled
from fedquilt.data.sources.medmnist import files as medmnist_files
from fedquilt.data.sources.medmnist.load import MedMnist, Validation
from fedquilt.data.sources.mnist.load import ORIGIN, Mnist, find_files


@dataclass(frozen=True, kw_only=True)
class MnistComposites(Composites):
    """MNIST (P. Li et al., 2023): handwritten digits on a canvas of 56 px.

    They lie in opposite corners, rolled by up to 6 px right and down.
    """

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


@dataclass(frozen=True, kw_only=True)
class Cifar10Composites(Composites):
    """CIFAR-10 (P. Li et al., 2023): photographs on a canvas of 64 px.

    They lie in opposite corners, shifted by up to 7 px to the centre.
    """

    origin: ClassVar[Origin] = cifar10_files.ORIGIN
    title: ClassVar[str] = "cifar10-composites"
    side: ClassVar[int] = 32

    def files(self) -> list[Path]:
        return cifar10_files.find_files(self.root)

    def originals(self, cache: Path) -> Splits:
        return Cifar10(folder=self.folder).load(cache)


@dataclass(frozen=True, kw_only=True)
class DermaMnistComposites(Composites):
    """DermaMNIST, as in FedNCA-ML: all single lesions, and 50 canvases per pair of classes.

    As all lesions are there, rare classes stay rare.
    """

    singles: int | None = None  # canvases per class with one image; None: one for every image
    pairs: int = 50  # canvases per pair of classes
    test_singles: int | None = None  # like singles, for the test split
    test_pairs: int = 14  # keeps the training split's share of pairs (the rarest class has 23)
    classes: int = 7  # number of classes, the first ones
    canvas: int = 56  # pixels per side
    validation: Validation = "train"  # the published validation images train, or are dropped
    origin: ClassVar[Origin] = medmnist_files.ORIGIN
    title: ClassVar[str] = "dermamnist-composites"
    flag: ClassVar[str] = "dermamnist"
    side: ClassVar[int] = 28

    def files(self) -> list[Path]:
        return [medmnist_files.find_file(self.root, self.flag, self.side)]

    def originals(self, cache: Path) -> Splits:
        return MedMnist(folder=self.folder, flag=self.flag, validation=self.validation).load(cache)
