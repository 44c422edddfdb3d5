"""Throughput of ``fedquilt predict`` beside a bare PyTorch loop over the same image files.

    python -m benchmarks.speed.predict

The bare loop is what a researcher would write: a DataLoader with one worker per core that decodes
with torchvision, resizes, and calls the network under ``inference_mode``. It writes nothing, while
``predict`` also compares the images with the training images, decides and writes its CSV file. They
alternate; the result is the median ratio of images per second, because other work on the machine
slows both. The ratio per core is that of images per CPU second, of all threads and processes: other
work hardly changes it.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms.v2.functional import resize

from benchmarks.harness.result_csv import write_results
from fedquilt.core.atomic_files import write_json
from fedquilt.core.settings import plain
from fedquilt.data.images import decoding
from fedquilt.data.images.pixel_statistics import pixel_statistics
from fedquilt.metrics.training_distance import far_from, fit_distance
from fedquilt.models.network import Network, read_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.reports.prediction_file import prediction_file
from fedquilt.runs.model_json import FORMAT
from fedquilt.runs.predictions import predict_files
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.trained_models import TrainedModels, open_models
from fedquilt.runs.unlike_training import UnlikeTraining, write_unlike_training

BATCH, CLASSES, TRAINED_ON = 32, 14, 100
SETTINGS = {  # name: backbone, pixels, size and ending of the files, images, pairs
    "small-cnn 64 px, 600 x 450 JPEG": ("small-cnn", 64, (600, 450), "jpg", 800, 7),
    "small-cnn 64 px, 1024 x 1024 PNG": ("small-cnn", 64, (1024, 1024), "png", 160, 5),
    "resnet18 224 px, 600 x 450 JPEG": ("resnet18", 224, (600, 450), "jpg", 128, 3),
}


class Files(Dataset[Tensor]):
    """The bare loop's images: decoded by torchvision and squashed to a square."""

    def __init__(self, paths: list[Path], size: int) -> None:
        self.paths, self.size = paths, size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, place: int) -> Tensor:
        image = decode_image(str(self.paths[place]), ImageReadMode.RGB)
        resized: Tensor = resize(image, [self.size, self.size], antialias=True)
        return resized


def by_hand(network: Network, paths: list[Path], size: int) -> None:
    loader = DataLoader(Files(paths, size), batch_size=BATCH, num_workers=os.cpu_count() or 1)
    with torch.inference_mode():
        for images in loader:
            torch.sigmoid(network((images / 255 - 0.5) / 0.5).logits)


def by_predict(models: TrainedModels, paths: list[Path], out: Path) -> None:
    out.unlink(missing_ok=True)
    with prediction_file(out, {}) as file:
        for batch in predict_files(models, paths):
            for image, rows, error in batch.rows():
                file.add(image, rows, error)


def make_images(folder: Path, size: tuple[int, int], ending: str, count: int) -> list[Path]:
    """Smooth random colours with fine noise: they compress about as photographs do."""
    folder.mkdir()
    width, height = size
    generator = torch.Generator().manual_seed(0)
    paths = []
    for number in range(count):
        coarse = torch.rand(1, 3, 9, 12, generator=generator)
        smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bicubic")[0]
        noise = 0.02 * torch.randn(3, height, width, generator=generator)
        pixels = ((smooth + noise).clamp(0, 1) * 255).byte().permute(1, 2, 0).numpy()
        paths.append(folder / f"{number:04d}.{ending}")
        Image.fromarray(pixels).save(paths[-1])
    return paths


def make_models(folder: Path, backbone: str, size: int, paths: list[Path]) -> TrainedModels:
    """Write an untrained network as a run would: only the speed matters.

    With it goes where the first of the images lie, as if it were trained on them.
    """
    folder.mkdir()
    spec = ModelSpec(backbone=backbone)
    classes = [f"class {number}" for number in range(CLASSES)]
    network = spec.build(channels=3, class_count=CLASSES, seed=0, class_names=classes)
    save_file(read_weights(network), folder / "model.safetensors")
    card = {
        "format": FORMAT,
        "classes": classes,
        "image_shape": [3, size, size],
        "decoding": {"size": size, "channels": 3, "fit": "squash", "window": None},
        "model": plain(spec, {}),
        "seed": 0,
        "threshold": 0.5,
        "strict": False,
        "batch_size": 256,
        "annotated": {"global": classes},
        "files": {"global": "model.safetensors"},
    }
    write_json(folder / "model.json", card)
    square = decoding.Decoding(size, 3, "squash")
    pixels = [decoding.decode_image(path, square).pixels for path in paths]
    images = torch.stack([torch.tensor(each) for each in pixels])
    with torch.inference_mode():
        features = network.eval()(images / 255).features.flatten(1)
    numbers = {"features": features.double().numpy(), "pixels": pixel_statistics(images).numpy()}
    unlike = UnlikeTraining(
        {kind: fit_distance(each) for kind, each in numbers.items()},
        {kind: far_from(each, None) for kind, each in numbers.items()},
    )
    write_unlike_training(RunFolder(folder), unlike, {})
    return open_models(folder)


def measure(
    folder: Path, setting: tuple[str, int, tuple[int, int], str, int, int]
) -> dict[str, float]:
    backbone, size, pixels, ending, count, pairs = setting
    folder.mkdir()
    paths = make_images(folder / "images", pixels, ending, count)
    models = make_models(folder / "run", backbone, size, paths[:TRAINED_ON])
    network = models.network(None)
    works: dict[str, Callable[[], None]] = {
        "hand": partial(by_hand, network, paths, size),
        "predict": partial(by_predict, models, paths, folder / "predictions.csv"),
    }
    rates: dict[str, list[float]] = {name: [] for name in works}
    per_core: dict[str, list[float]] = {name: [] for name in works}
    for pair in range(pairs + 1):  # the first pair warms up
        for name, work in works.items():
            began, cpu_began = time.perf_counter(), cpu_seconds()
            work()
            if pair:
                rates[name].append(count / (time.perf_counter() - began))
                per_core[name].append(count / (cpu_seconds() - cpu_began))
    ratios = [mine / theirs for mine, theirs in zip(rates["predict"], rates["hand"])]
    return {
        "images": count,
        "pairs": pairs,
        "hand_images_per_second": round(statistics.median(rates["hand"]), 1),
        "predict_images_per_second": round(statistics.median(rates["predict"]), 1),
        "ratio": round(statistics.median(ratios), 3),
        "lowest_ratio": round(min(ratios), 3),
        "highest_ratio": round(max(ratios), 3),
        "hand_images_per_cpu_second": round(statistics.median(per_core["hand"]), 1),
        "predict_images_per_cpu_second": round(statistics.median(per_core["predict"]), 1),
        "ratio_per_core": round(
            statistics.median(a / b for a, b in zip(per_core["predict"], per_core["hand"])), 3
        ),
    }


def cpu_seconds() -> float:
    """Of all threads of this process, and of the processes that it has started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, setting) in enumerate(SETTINGS.items()):
            row = {"setting": name, **measure(Path(scratch) / str(number), setting)}
            print(row, flush=True)
            rows.append(row)
    write_results("speed/predict", rows)


if __name__ == "__main__":
    main()
