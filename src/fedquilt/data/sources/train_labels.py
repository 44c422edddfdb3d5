"""The labels that clients hold, without opening an image where a data set allows it."""

from __future__ import annotations

from pathlib import Path

import torch

from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.published.image_table import ImageTable, SplitIndices
from fedquilt.data.source import Source
from fedquilt.data.sources.chestxray14.load import ChestXray14
from fedquilt.data.sources.flair.load import Flair
from fedquilt.data.sources.ham10000.load import Ham10000
from fedquilt.data.sources.ms_coco.load import MsCoco
from fedquilt.data.sources.pascal_voc.load import PascalVoc


def train_labels(source: Source, cache: Path) -> MultiLabelDataset:
    """Return the training part; its images are of one black pixel where labels are files.

    So the label files are enough to see who would hold what.
    """
    found = _labels(source)
    if found is None:
        return source.load(cache).train
    table, indices = found
    chosen = table.select(indices.train)
    return chosen.with_images(torch.zeros(len(chosen), 1, 1, 1, dtype=torch.uint8))


def _labels(source: Source) -> tuple[ImageTable, SplitIndices] | None:
    if isinstance(source, (ChestXray14, Ham10000)):
        table = source.labels()
        return table, source.split_indices(table)
    if isinstance(source, (Flair, MsCoco, PascalVoc)):
        return source.labels()
    return None
