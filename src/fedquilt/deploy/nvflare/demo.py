"""A demo study of three sites on one machine: ``python -m fedquilt.deploy.nvflare.demo [OUT]``.

It also runs the same recipe in one process, and compares the two models.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image
from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file

from fedquilt.core.errors import UserError
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.nvflare.provision import provision
from fedquilt.deploy.study import read_study
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.simulation import Simulation, simulate

FEDQUILT = [sys.executable, "-c", "from fedquilt.cli.main import main; main()"]
ENDING_SECONDS = 20  # wait for a process to end after SIGTERM
RECIPE: dict[str, Any] = {
    "rounds": 12,
    "seed": 11,
    "min_cell": 10,
    "data": {"name": "digits-mosaic", "train": 300, "seed": 11},
    "partition": {"name": "iid", "clients": 3},
    "annotation": {
        "name": "listed",
        "annotates": {
            "0": ["digit 0", "digit 1"],
            "1": ["digit 2", "digit 3"],
            "2": ["digit 4", "digit 0"],
        },
    },
    "model": {"backbone": "small-cnn"},
    "views": {"weak": "plain"},
    "method": {
        "name": "fedmlp",
        "warmup_rounds": 6,
        "warmup_views": 1,
        "negative_share": 0.03,
        "positive_share": 0.03,
        "training": {"lr": 3e-3, "epochs": 2},
    },
}

console = Console(highlight=False)


def main(out: Path) -> None:
    if out.exists():
        raise UserError(f"{out} already exists; give a new folder")
    began = time.perf_counter()
    recipe = recipe_from(RECIPE)
    simulation = simulate(recipe, out / "cache")
    settings = write_sites(simulation, out / "sites", {"min_cell": 10})
    study_file = write_study(simulation, out)
    console.print(f"wrote three sites with 100 images each, and {study_file}")
    kits = provision(read_study(study_file), out / "kits")
    processes = [_start(out, "server", "server", "start", str(kits["server"]))]
    try:
        for name, path in settings.items():
            processes.append(_start(out, name, "site", "start", str(kits[name]), str(path)))
        command = ["deploy", "submit", str(study_file), "--kit", str(kits["coordinator"])]
        subprocess.run([*FEDQUILT, *command, "--out", str(out / "deployed")], check=True)
    finally:
        _end(processes)
    console.print("running the same recipe in one process")
    run(recipe, out / "local", cache=out / "cache")
    difference = compare(out / "deployed", out / "local", simulation)
    console.print(f"largest difference of any weight: {difference:g}")
    console.print(f"finished in {time.perf_counter() - began:.0f} s; all files are in {out}")
    if difference > 1e-6:
        raise UserError("the two runs differ by more than 1e-6")


def write_sites(simulation: Simulation, out: Path, policy: Mapping[str, object]) -> dict[str, Path]:
    """Write one folder per client and return the paths of their site.toml files."""
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


def write_study(simulation: Simulation, out: Path) -> Path:
    """Write study.toml and the recipe it names, as a coordinator would."""
    (out / "recipe.json").write_text(json.dumps(RECIPE, indent=2))
    classes = simulation.task.classes
    lines = [
        'name = "digits-demo"',
        f"classes = {json.dumps(list(classes))}",
        'recipe = "recipe.json"',
        "evaluate_on_server = true  # the server has test images",
        "\n[images]\nsize = 16\nchannels = 1",
        f'\n[server]\nhost = "localhost"\nport = {free_port()}\nbind = "127.0.0.1"',
        "\n[rules]\nquorum = 2\nstart_seconds = 120.0\nround_seconds = 120.0\nlate_seconds = 20.0",
    ]
    for name, data in simulation.clients.items():
        annotates = json.dumps(annotated_classes(data, classes))
        organisation = name.replace("-", "_")
        lines.append(
            f'\n[[sites]]\nname = "{name}"\norganisation = "{organisation}"\n'
            f"annotates = {annotates}"
        )
    path = out / "study.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def compare(deployed: Path, local: Path, simulation: Simulation) -> float:
    """Print both runs' metrics per class; return the largest difference of their weights."""
    there, here = (json.loads((run / "result.json").read_text()) for run in (deployed, local))
    table = Table(title="AUC per class")
    for column in ("class", "annotated by", "across sites", "in one process"):
        table.add_column(column)
    aucs = [each["reports"]["global"]["per_class"]["auc"] for each in (there, here)]
    for name, one, two in zip(simulation.task.classes, *aucs):
        annotators = [
            client
            for client, data in simulation.clients.items()
            if name in annotated_classes(data, simulation.task.classes)
        ]
        table.add_row(name, ", ".join(annotators), f"{one:.4f}", f"{two:.4f}")
    console.print(table)
    weights = [load_file(each / "model.safetensors") for each in (deployed, local)]
    return max(float((weights[0][name] - weights[1][name]).abs().max()) for name in weights[0])


def new_folder() -> Path:
    first = folder = Path("runs") / "deploy-demo"
    number = 2
    while folder.exists():
        folder = first.with_name(f"{first.name}-{number}")
        number += 1
    return folder


def _write_images(data: ClientData, folder: Path) -> None:
    for row, index in enumerate(data.indices.tolist()):
        pixels = data.images[index].permute(1, 2, 0).numpy()
        Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(
            folder / f"{row:05d}.png"
        )
    # The folder source needs a test split; the simulation's test images are not the sites'.
    channels, height, width = data.images.shape[1:]
    Image.new("L" if channels == 1 else "RGB", (width, height)).save(folder / "held-out.png")


def _write_labels(data: ClientData, classes: tuple[str, ...], path: Path) -> None:
    """Write the columns that the site annotates; a blank cell is an unannotated label."""
    annotated = annotated_classes(data, classes)
    columns = [classes.index(name) for name in annotated]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "split", *annotated])
        for row, (labels, known) in enumerate(zip(data.labels.tolist(), data.known.tolist())):
            cells = [labels[column] if known[column] else "" for column in columns]
            writer.writerow([f"{row:05d}.png", "train", *cells])
        writer.writerow(["held-out.png", "test", *([0] * len(annotated))])


def _start(out: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (out / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*FEDQUILT, *arguments], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    """Terminate the processes, which end their children; kill those that do not end in time."""
    for each in processes:
        each.send_signal(signal.SIGTERM)
    for each in processes:
        try:
            each.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(each.pid, signal.SIGKILL)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else new_folder())
    except UserError as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError:
        sys.exit("the study did not finish; see the logs beside its study.toml")
