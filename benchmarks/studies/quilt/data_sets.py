"""The data sets of the study, small enough to be carried, and what of them each seed trains on.

    python -m benchmarks.studies.quilt.data_sets --shared FOLDER --out carry/22

packs 1,400 photographs of each class of CIFAR-10, the MIML scenes at 64 px and 1,000 radiographs of
ChestX-ray14; the photographs can also be read as the data set cifar10. A tuning seed is scored on
validation images: other photographs of CIFAR-10's training part, or images (for radiographs:
patients) taken out of the training part.
"""

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from fedquilt.core.seeding import generator_for
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits, complete_dataset, numbered_ids
from fedquilt.data.sources.composites.paint import paint
from fedquilt.data.sources.composites.plan import Layout, draw_plan, towards_centre
from fedquilt.data.sources.digits_mosaic.load import DigitsMosaic
from fedquilt.data.sources.folder.load import Folder

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
PARTS = {"train": 900, "validation": 250, "test": 250}  # photographs of each class
CANVASES = {"train": (830, 100), "validation": (120, 12), "test": (160, 16)}  # singles, pairs
SIZE = 32  # pixels per side of the canvases, half of what is painted
FREQUENT = ("Infiltration", "Effusion", "Atelectasis", "Cardiomegaly", "Consolidation", "Nodule")
VALIDATION = 1000  # added to the seed of mosaics
HELD_OUT = 0.3  # of the radiographs' patients, and of the rest for validation
FEWEST, ATTEMPTS = 8, 200  # positives of every class in a part, and draws to find such a split


def composites(folder: Path, seed: int, part: str) -> Splits:
    with np.load(folder / "cifar10_jpeg.npz") as stored:
        names = tuple(str(name) for name in stored["classes"])
        made = {
            split: _painted(stored, split, names, seed, CANVASES[split])
            for split in ("train", part)
        }
    return Splits(train=made["train"], test=made[part])


def _painted(
    stored: Any, split: str, names: tuple[str, ...], seed: int, counts: tuple[int, int]
) -> MultiLabelDataset:
    images = np.stack(_decoded(stored[f"{split}_jpeg"], stored[f"{split}_offsets"]))
    layout = Layout(pad=32, placing=towards_centre, single_corner="coin")
    plan = draw_plan(
        stored[f"{split}_labels"].astype(np.int64),
        names,
        layout,
        singles=counts[0],
        pairs=counts[1],
        names=("quilt", seed, split),
    )
    painted = paint(plan, images.transpose(0, 3, 1, 2), 64, SIZE, f"painting {split}")
    return _complete(np.concatenate([*painted]), plan.labels, names, split)


def scenes(folder: Path, seed: int, part: str) -> Splits:
    with np.load(folder / "scenes.npz") as stored:
        pixels = np.stack(_decoded(stored["jpeg"], stored["offsets"])).transpose(0, 3, 1, 2)
        labels, names = stored["labels"], tuple(str(name) for name in stored["classes"])
    return _split(pixels, labels, names, np.arange(len(labels)), seed, part, held_out=0.2)


def radiographs(folder: Path, seed: int, part: str) -> Splits:
    """The six most frequent findings, split by patient; grey values in three channels."""
    stored, labels = _findings(folder)
    pixels = np.repeat(stored["images"][:, None], 3, axis=1)
    return _split(pixels, labels, FREQUENT, stored["patient"], seed, part, held_out=HELD_OUT)


def tested_radiographs(folder: Path, seed: int) -> tuple[Bytes, npt.NDArray[np.int64], int]:
    """Labels and patients of the test images; patients are numbered alike for every seed."""
    stored, labels = _findings(folder)
    patients = np.unique(stored["patient"], return_inverse=True)[1]
    _, tested = _drawn(labels, patients, seed, "test", HELD_OUT)
    return labels[tested], patients[tested], int(patients.max()) + 1


def _findings(folder: Path) -> tuple[dict[str, npt.NDArray[Any]], Bytes]:
    with np.load(folder / "nih.npz") as file:
        stored = {name: file[name] for name in ("images", "labels", "classes", "patient")}
    columns = [list(stored["classes"]).index(name) for name in FREQUENT]
    return stored, stored["labels"][:, columns]


def digits(folder: Path, seed: int, part: str) -> Splits:
    """Mosaics are drawn anew for every seed, and other digits for validation than for testing."""
    return DigitsMosaic(seed=seed if part == "test" else seed + VALIDATION).load(folder)


def _split(
    pixels: Bytes,
    labels: Bytes,
    names: tuple[str, ...],
    patients: npt.NDArray[np.int64],
    seed: int,
    part: str,
    held_out: float,
) -> Splits:
    trained, tested = _drawn(labels, patients, seed, part, held_out)
    return Splits(
        train=_complete(pixels[trained], labels[trained], names, "train"),
        test=_complete(pixels[tested], labels[tested], names, part),
    )


def _drawn(
    labels: Bytes, patients: npt.NDArray[np.int64], seed: int, part: str, held_out: float
) -> tuple[Mask, Mask]:
    """Hold out a share of the patients for testing, and as many of the others for validation.

    Patients are drawn anew until every class has positives everywhere.
    """
    found, of_image = np.unique(patients, return_inverse=True)
    count = round(held_out * len(found))
    for attempt in range(ATTEMPTS):
        order = torch.randperm(len(found), generator=generator_for("quilt", seed, attempt)).numpy()
        rank = np.empty(len(found), dtype=np.int64)
        rank[order] = np.arange(len(found))
        place = rank[of_image]
        tested = place < count if part == "test" else (place >= count) & (place < 2 * count)
        trained = place >= (count if part == "test" else 2 * count)
        if min(labels[rows].sum(0).min() for rows in (trained, tested)) >= FEWEST:
            return trained, tested
    raise ValueError(f"no split with {FEWEST} positives of every class in {ATTEMPTS} draws")


def _complete(
    pixels: Bytes, labels: Bytes, names: tuple[str, ...], split: str
) -> MultiLabelDataset:
    images = torch.from_numpy(np.ascontiguousarray(pixels))
    marks = torch.from_numpy(np.ascontiguousarray(labels.astype(np.uint8)))
    return complete_dataset(images, marks, names, numbered_ids(split, len(marks)))


LOADERS: dict[str, Callable[[Path, int, str], Splits]] = {
    "composites": composites,
    "scenes": scenes,
    "radiographs": radiographs,
    "digits": digits,
}


def _decoded(blob: Bytes, offsets: npt.NDArray[np.int64]) -> list[Bytes]:
    return [
        np.asarray(Image.open(io.BytesIO(blob[start:stop].tobytes())).convert("RGB"))
        for start, stop in pairwise(offsets)
    ]


def _joined(images: list[bytes]) -> dict[str, npt.NDArray[Any]]:
    offsets = np.cumsum([0, *map(len, images)], dtype=np.int64)
    return {"jpeg": np.frombuffer(b"".join(images), dtype=np.uint8), "offsets": offsets}


def pack_cifar10(shared: Path, out: Path) -> None:
    arrays: dict[str, npt.NDArray[Any]] = {}
    with np.load(shared / "data" / "cifar10_jpeg.npz") as stored:
        arrays["classes"] = stored["classes"]
        pools: dict[str, Any] = {
            name: (stored[f"{name}_jpeg"], stored[f"{name}_offsets"], stored[f"{name}_labels"])
            for name in ("train", "test")
        }
    first = {"train": 0, "validation": PARTS["train"], "test": 0}
    for part, count in PARTS.items():
        blob, offsets, labels = pools["test" if part == "test" else "train"]
        rows = np.concatenate(
            [np.flatnonzero(labels == c)[first[part] : first[part] + count] for c in range(10)]
        )
        taken = [blob[offsets[row] : offsets[row + 1]].tobytes() for row in rows]
        arrays |= {f"{part}_{key}": value for key, value in _joined(taken).items()}
        arrays[f"{part}_labels"] = labels[rows]
    np.savez(out / "cifar10_jpeg.npz", allow_pickle=False, **arrays)


def pack_scenes(shared: Path, out: Path) -> None:
    folder = shared / "data" / "miml_scenes"
    source = Folder(folder=str(folder / "images"), labels=str(folder / "labels.csv"), size=64)
    splits = source.load(out / "cache")
    pixels = torch.cat([splits.train.images, splits.test.images]).permute(0, 2, 3, 1).numpy()
    labels = torch.cat([splits.train.labels, splits.test.labels]).numpy()
    encoded = []
    for image in pixels:
        stream = io.BytesIO()
        Image.fromarray(image).save(stream, "JPEG", quality=95)
        encoded.append(stream.getvalue())
    names = np.array(splits.train.classes)
    np.savez(
        out / "scenes.npz", allow_pickle=False, labels=labels, classes=names, **_joined(encoded)
    )
    shutil.rmtree(out / "cache")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--shared", type=Path, required=True, help="the folder with data/, weights/"
    )
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pack_cifar10(options.shared, options.out)
    pack_scenes(options.shared, options.out)
    data, weights = options.shared / "data", options.shared / "weights"
    shutil.copyfile(data / "nih_chest1000_64px.npz", options.out / "nih.npz")
    stored = weights / "resnet18_tinyimagenet200_64px.safetensors"
    shutil.copyfile(stored, options.out / "resnet18.safetensors")


if __name__ == "__main__":
    main()
