"""A whole study on this machine: server and sites as separate processes over TLS on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
from safetensors.torch import load_file

from fedquilt.atomic_files import write_json
from fedquilt.client_states import StatesInMemory
from fedquilt.deploy.demo_sites import annotated_classes, write_sites
from fedquilt.deploy.study import Study, study_from
from fedquilt.engines.local import LocalEngine
from fedquilt.engines.nvflare.demo import FEDQUILT, free_port
from fedquilt.engines.nvflare.provision import provision
from fedquilt.method import State
from fedquilt.recipe import recipe_from
from fedquilt.rounds import start_server
from fedquilt.simulation import Simulation, simulate
from fedquilt.tree import Weights

ANNOTATES = {  # any two of the three annotate everything
    "0": ["digit 0", "digit 1"],
    "1": ["digit 1", "digit 2"],
    "2": ["digit 2", "digit 0"],
}
QUICK = {"start_seconds": 120.0, "round_seconds": 90.0, "late_seconds": 8.0, "lost_seconds": 20.0}


def recipe_settings(method: str, *, rounds: int = 3, **training: object) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "seed": 5,
        "data": {"name": "digits-mosaic", "classes": 3, "train": 90, "test": 100},
        "partition": {"name": "iid", "clients": 3},
        "annotation": {"name": "listed", "annotates": ANNOTATES},
        "model": {"backbone": "small-cnn"},
        "views": {"weak": "plain"},
        "method": {"name": method, "training": {"lr": 3e-3} | training}
        | ({"warmup_rounds": 1} if method == "fedmlp" else {}),
    }


class RunningStudy:
    """Everything it starts ends with the ``with`` block."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        rules: Mapping[str, Any] | None = None,
        host: str = "localhost",
    ) -> None:
        self.folder = folder
        self.simulation: Simulation = simulate(recipe_from(settings), folder / "cache")
        task = self.simulation.task
        self.site_settings = write_sites(self.simulation, folder / "sites", {"min_cell": 1})
        self.study: Study = study_from(
            {
                "name": "digits",
                "classes": list(task.classes),
                "images": {"size": 16, "channels": 1},
                "sites": [
                    {
                        "name": name,
                        "organisation": name.replace("-", "_"),
                        "annotates": annotated_classes(data, task.classes),
                    }
                    for name, data in self.simulation.clients.items()
                ],
                "server": {"host": host, "port": free_port(), "bind": "127.0.0.1"},
                "rules": QUICK | dict(rules or {}),
                "recipe": settings,
                "evaluate_on_server": True,
            }
        )
        self.study_file = folder / "study.json"
        write_json(self.study_file, self.study.to_dict())
        self.kits = provision(self.study, folder / "kits")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> RunningStudy:
        return self

    def __exit__(self, *details: object) -> None:
        for name in list(self.processes):
            self.kill(name)
        left = [each for each in psutil.process_iter(["cmdline"]) if self._is_ours(each)]
        for each in left:
            each.kill()
        assert not left, "processes were left behind"

    def _is_ours(self, process: psutil.Process) -> bool:
        return any(str(self.folder) in word for word in process.info["cmdline"] or ())

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("ab") as out:
            process = subprocess.Popen(
                [*FEDQUILT, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )
        self.processes[name] = process
        return process

    def start_server(self) -> None:
        self.start("server", "server", "start", str(self.kits["server"]))

    def start_site(self, name: str, kit: Path | None = None) -> subprocess.Popen[bytes]:
        chosen = self.kits[name] if kit is None else kit
        return self.start(name, "site", "start", str(chosen), str(self.site_settings[name]))

    def start_all(self) -> None:
        self.start_server()
        for name in self.study.site_names:
            self.start_site(name)

    def submit(self, *options: str) -> subprocess.Popen[bytes]:
        kit = ["--kit", str(self.kits["coordinator"])]
        return self.start("submit", "deploy", "submit", str(self.study_file), *kit, *options)

    def kill(self, name: str) -> None:
        """As a power cut would: the process and all it started, at once."""
        process = self.processes.pop(name)
        try:
            tree = psutil.Process(process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            tree = []
        for each in [psutil.Process(process.pid)] if process.poll() is None else []:
            each.kill()
        for each in tree:
            try:
                each.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()

    def said(self, name: str) -> str:
        return (self.folder / f"{name}.out").read_text(errors="replace")

    @property
    def run_folder(self) -> Path:
        return self.kits["server"] / "fedquilt" / "runs" / "digits"

    def history(self) -> list[dict[str, Any]]:
        path = self.run_folder / "history.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def wait_for_round(self, number: int, seconds: float = 150.0) -> None:
        wait_until(lambda: len(self.history()) >= number, seconds, f"round {number}", self)

    def weights(self) -> Weights:
        weights: Weights = load_file(self.run_folder / "model.safetensors")
        return weights

    def local_weights(self) -> Weights:
        """What one process gets with the participation that the history tells of."""
        method, task = self.study.recipe.method, self.simulation.task
        engine = LocalEngine(task, self.simulation.clients, states=StatesInMemory())
        server: State = start_server(method, task, engine)
        for record in self.history():
            totals = engine.exchange(
                method, method.broadcast(server), record["round"] - 1, sorted(record["cohort"])
            )
            server = method.update(server, totals)
        weights = method.global_weights(server)
        assert weights is not None
        return weights

    def largest_difference(self) -> float:
        here, there = self.local_weights(), self.weights()
        assert here.keys() == there.keys()
        return max(float((here[name] - there[name]).abs().max()) for name in here)


def wait_until(condition: Any, seconds: float, what: str, study: RunningStudy) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"no {what} within {seconds} s: {study.said('submit')}"
        time.sleep(0.2)
