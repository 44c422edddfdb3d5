"""A simulation's clients as hospitals on disk: image files, a label file and a site.toml each."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from PIL import Image

from fedquilt.data.client_data import ClientData
from fedquilt.simulation import Simulation


def write_sites(simulation: Simulation, out: Path, policy: Mapping[str, object]) -> dict[str, Path]:
    """One folder per client; returns each one's site.toml."""
    written = {}
    for name, data in simulation.clients.items():
        folder = out / name
        (folder / "images").mkdir(parents=True)
        _write_images(data, folder / "images")
        _write_labels(data, simulation.task.classes, folder / "labels.csv")
        (folder / "secret").write_bytes(data.secret)
        rules = "".join(f"{key} = {value}\n" for key, value in policy.items())
        (folder / "site.toml").write_text(
            'secret_file = "secret"\n\n[data]\nfolder = "images"\nlabels = "labels.csv"\n'
            f'split_column = "split"\n\n[policy]\n{rules}',
            encoding="utf-8",
        )
        written[name] = folder / "site.toml"
    return written


def annotated_classes(data: ClientData, classes: tuple[str, ...]) -> list[str]:
    return [name for name, known in zip(classes, data.known.any(0).tolist()) if known]


def _write_images(data: ClientData, folder: Path) -> None:
    for row, index in enumerate(data.indices.tolist()):
        pixels = data.images[index].permute(1, 2, 0).numpy()
        Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(
            folder / f"{row:05d}.png"
        )
    # The folder source wants a test part; the simulation's own test images are elsewhere.
    channels, height, width = data.images.shape[1:]
    Image.new("L" if channels == 1 else "RGB", (width, height)).save(folder / "held-out.png")


def _write_labels(data: ClientData, classes: tuple[str, ...], path: Path) -> None:
    """Only the columns that the site annotates; a blank cell is not annotated."""
    own = annotated_classes(data, classes)
    columns = [classes.index(name) for name in own]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "split", *own])
        for row, (labels, known) in enumerate(zip(data.labels.tolist(), data.known.tolist())):
            cells = [labels[column] if known[column] else "" for column in columns]
            writer.writerow([f"{row:05d}.png", "train", *cells])
        writer.writerow(["held-out.png", "test", *([0] * len(own))])
