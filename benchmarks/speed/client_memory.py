"""Peak memory of the sequential engine with 10 and with 200 clients that share the same images.

python -m benchmarks.speed.client_memory
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

IMAGES, CLASSES, PIXELS = 2000, 5, 64


def peak_megabytes(method_name: str, backbone: str, client_count: int) -> float:
    """Train two rounds of one step per client, with states and checkpoints on disk."""
    from fedquilt.core.registry import find
    from fedquilt.data.augmentation.views import Preprocessing, Views
    from fedquilt.data.client_data import ClientData
    from fedquilt.engines.sequential import SequentialEngine
    from fedquilt.methods import METHODS
    from fedquilt.models.spec import ModelSpec
    from fedquilt.runs.checkpoint import Checkpoints
    from fedquilt.training.local_training import LocalTraining
    from fedquilt.training.rounds import run_rounds, start_server
    from fedquilt.training.task import Task

    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (IMAGES, 3, PIXELS, PIXELS), generator=generator).to(torch.uint8)
    labels = torch.randint(0, 2, (IMAGES, CLASSES), generator=generator).to(torch.uint8)
    clients = {}
    for number, rows in enumerate(torch.arange(IMAGES).chunk(client_count)):
        known = torch.zeros(len(rows), CLASSES, dtype=torch.bool)
        known[:, number % CLASSES] = True
        name = f"client-{number:03d}"
        clients[name] = ClientData(name, images, rows, labels[rows], known)
    task = Task(
        classes=tuple(map(str, range(CLASSES))),
        clients=tuple(clients),
        image_shape=(3, PIXELS, PIXELS),
        model=ModelSpec(backbone=backbone),
        preprocessing=Preprocessing(views=Views(weak="plain"), mean=(0.5,), std=(0.5,)),
        round_count=2,
        seed=0,
    )
    method = find("method", METHODS, method_name)(
        training=LocalTraining(steps=1, batch_size=10, lr=1e-3)
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        engine = SequentialEngine(task, clients, states=checkpoints)
        server = start_server(method, task, engine)
        for round_ in run_rounds(method, task, engine, server):
            checkpoints.advance(round_.index + 1, round_.server)
            checkpoints.save()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--one", nargs=3, metavar=("METHOD", "BACKBONE", "CLIENTS"), help=argparse.SUPPRESS
    )
    one = parser.parse_args().one
    if one:
        print(json.dumps(peak_megabytes(one[0], one[1], int(one[2]))))
        return
    from benchmarks.harness.result_csv import write_results

    rows = []
    # SCAFFOLD keeps a second model per client: 200 of them in memory would show here.
    for method, backbone in (("fedavg-pl", "resnet18"), ("scaffold", "small-resnet")):
        peaks = {}
        for count in (10, 200):
            command = [
                sys.executable,
                "-m",
                "benchmarks.speed.client_memory",
                "--one",
                method,
                backbone,
                str(count),
            ]
            finished = subprocess.run(command, capture_output=True, text=True, check=True)
            peaks[count] = float(finished.stdout)
        ratio = peaks[200] / peaks[10]
        print(
            f"{method}: {peaks[10]:.0f} MiB with 10 clients, {peaks[200]:.0f} with 200: {ratio:.3f}"
        )
        rows.append(
            {
                "method": method,
                "network": f"{backbone} {PIXELS} px",
                "peak_mib_10_clients": round(peaks[10]),
                "peak_mib_200_clients": round(peaks[200]),
                "ratio": round(ratio, 4),
            }
        )
    write_results("speed/client_memory", rows)


if __name__ == "__main__":
    main()
