"""What the demo study consists of on disk: the sites' files, the study files, processes."""

from __future__ import annotations

import csv
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image

from fedquilt.data.client_data import ClientData
from fedquilt.runs.simulation import Simulation

FEDQUILT = [sys.executable, "-c", "from fedquilt.cli.main import main; main()"]
ENDING_SECONDS = 20  # wait for a process to end after SIGTERM


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


def write_study(
    path: Path, recipe: str, simulation: Simulation, sites: Sequence[str], port: int
) -> Path:
    """Write the study file of these sites, which names the recipe's file beside it."""
    classes = simulation.task.classes
    lines = [
        'name = "digits-demo"',
        f"classes = {json.dumps(list(classes))}",
        f'recipe = "{recipe}"',
        "evaluate_on_server = true  # the server has test images",
        "\n[images]\nsize = 16\nchannels = 1",
        f'\n[server]\nhost = "localhost"\nport = {port}\nbind = "127.0.0.1"',
        "\n[rules]\nquorum = 2\nstart_seconds = 120.0\nround_seconds = 120.0\nlate_seconds = 20.0",
    ]
    for name in sites:
        annotates = json.dumps(annotated_classes(simulation.clients[name], classes))
        lines.append(
            f'\n[[sites]]\nname = "{name}"\norganisation = "{organisation(name)}"\n'
            f"annotates = {annotates}"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def organisation(site: str) -> str:
    return site.replace("-", "_")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_process(out: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    with (out / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*FEDQUILT, *arguments], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )


def end_processes(processes: list[subprocess.Popen[bytes]]) -> None:
    """Terminate the processes, which end their children; kill those that do not end in time."""
    for each in processes:
        each.send_signal(signal.SIGTERM)
    for each in processes:
        try:
            each.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(each.pid, signal.SIGKILL)


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
