"""Composites: multi-label canvases with one image, or two images of different classes."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from fedquilt.core.errors import UserError
from fedquilt.data.published.origin import PublishedSource
from fedquilt.data.published.prepared import Chunks, prepare_arrays
from fedquilt.data.source import Splits, complete_splits
from fedquilt.data.sources.composites.paint import paint
from fedquilt.data.sources.composites.plan import Layout, draw_plan, towards_centre

PAINT_VERSION = 1  # raise it when canvases change, so that older ones are not used


@dataclass(frozen=True, kw_only=True)
class Composites(PublishedSource):
    """Singles and pairs of images on black canvases; test canvases hold test images only."""

    singles: int | None = 3100  # canvases per class with one image; None: one for every image
    pairs: int = 200  # canvases per pair of classes
    test_singles: int | None = 800  # like singles, for the test split
    test_pairs: int = 50  # like pairs, for the test split
    classes: int = 10  # number of classes, the first ones
    canvas: int = 64  # pixels per side
    size: int | None = None  # pixels per side after resizing; None: no resizing
    seed: int = 0  # of the images and their positions
    title: ClassVar[str]
    side: ClassVar[int]  # pixels per side of an original image

    def __post_init__(self) -> None:
        for field, least in (
            ("classes", 2),
            ("canvas", self.side),
            ("singles", 0),
            ("pairs", 0),
            ("test_singles", 0),
            ("test_pairs", 0),
            ("size", 1),
        ):
            value = getattr(self, field)
            if value is not None and value < least:
                raise UserError(f"{self.title}: {field} is {value}; expected at least {least}")
        for prefix in ("", "test_"):
            if (getattr(self, f"{prefix}singles"), getattr(self, f"{prefix}pairs")) == (0, 0):
                raise UserError(
                    f"{self.title}: {prefix}singles and {prefix}pairs are both 0; expected at "
                    "least one of them above 0"
                )

    @abstractmethod
    def files(self) -> list[Path]:
        """The published files of the original images."""

    @abstractmethod
    def originals(self, cache: Path) -> Splits:
        """The original images, with one label each."""

    def layout(self) -> Layout:
        """Where images go on a canvas."""
        return Layout(pad=self.canvas - self.side, placing=towards_centre, single_corner="coin")

    def load(self, cache: Path) -> Splits:
        """Load the canvases from ``cache``; paint them if they are not there."""
        originals = self.originals(cache)
        names = originals.train.classes[: self.classes]
        if self.classes > len(names):
            raise UserError(
                f"{self.title}: classes is {self.classes}; expected at most {len(names)}"
            )
        settings = {key: value for key, value in asdict(self).items() if key != "folder"}
        arrays = prepare_arrays(
            cache,
            self.title,
            self.files(),
            settings | {"version": PAINT_VERSION},
            lambda: self._chunks(originals, names),
        )
        return complete_splits(arrays, names)

    def _chunks(self, originals: Splits, names: tuple[str, ...]) -> Chunks:
        for split, data, singles, pairs in (
            ("train", originals.train, self.singles, self.pairs),
            ("test", originals.test, self.test_singles, self.test_pairs),
        ):
            plan = draw_plan(
                data.labels.argmax(1).numpy(),
                names,
                self.layout(),
                singles=singles,
                pairs=pairs,
                names=(self.title, self.seed, split),
            )
            title = f"painting {self.title}, {split}"
            for painted in paint(plan, data.images.numpy(), self.canvas, self.size, title):
                yield f"{split}_images", painted
            yield f"{split}_labels", plan.labels
