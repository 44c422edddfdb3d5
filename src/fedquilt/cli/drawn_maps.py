"""The maps of ``fedquilt predict``: what --explain and --attention draw over every image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.core.errors import UserError
from fedquilt.reports.style import percent

if TYPE_CHECKING:
    from torch import Tensor

    from fedquilt.reports.class_map_picture import MapKind
    from fedquilt.runs.predictions import FileBatch
    from fedquilt.runs.trained_models import TrainedModels

MANY_CLASSES = 24  # so many are shown and drawn per image: the most probable


@dataclass(frozen=True)
class DrawnMaps:
    """Draws the maps that were asked for."""

    models: TrainedModels
    client: str | None
    device: str
    explain: Path | None
    attention: Path | None

    def __post_init__(self) -> None:
        if self.explain is not None and self.explain == self.attention:
            raise UserError("--explain and --attention name the same folder; give two folders")

    def draw(self, batch: FileBatch) -> Iterator[tuple[str, Path]]:
        """Yield what is shown and the file of each picture."""
        if self.explain is None and self.attention is None:
            return
        from fedquilt.reports.class_map_picture import ATTENTION, HEAT

        if self.explain is not None:
            maps = self.models.heat_maps(batch.pixels, self.client, self.device)
            yield from self._draw(batch, maps, HEAT, self.explain)
        if self.attention is not None:
            maps = self.models.attention(batch.pixels, self.client, self.device)
            shares = maps * maps.shape[2] * maps.shape[3]
            yield from self._draw(batch, shares, ATTENTION, self.attention)

    def _draw(
        self, batch: FileBatch, maps: Tensor, kind: MapKind, folder: Path
    ) -> Iterator[tuple[str, Path]]:
        from fedquilt.reports.class_map_picture import save_class_maps

        prediction = batch.prediction
        images = zip(batch.positions(), prediction.images, prediction.by_image())
        for number, (position, image, rows) in enumerate(images):
            drawn = folder / f"{position + 1}-{Path(image).stem}.png"  # two may share a name
            likely = most_likely(rows)
            place = {row["class"]: position for position, row in enumerate(rows)}
            chosen = maps[number][[place[row["class"]] for row in likely]]
            titles = [_title(row) for row in likely]
            save_class_maps(batch.pixels[number], chosen, titles, drawn, kind)
            yield kind.what, drawn


def most_likely(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All classes in their order or, of many, the most probable, which come first."""
    if len(rows) <= MANY_CLASSES:
        return rows
    ranked = sorted(rows, key=lambda row: -row["probability"])
    return ranked[:MANY_CLASSES]


def _title(row: Mapping[str, Any]) -> str:
    """Class, probability, decision and threshold, in two lines."""
    limit = "" if row["threshold"] is None else f", from {percent(row['threshold'])} %"
    return f"{row['class']}: {percent(row['probability'])} %\n{row['decision']}{limit}"
