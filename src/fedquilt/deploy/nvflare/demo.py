"""A demo study on one machine: ``python -m fedquilt.deploy.nvflare.demo [OUT]``.

Three sites begin. One joins while the study runs, by an amendment that all of them sign, and one is
excluded. The same rounds, with the same sites in each, then run in one process, and the two models
are compared.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from safetensors.torch import load_file

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Weights
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.demo_files import (
    FEDQUILT,
    annotated_classes,
    end_processes,
    free_port,
    organisation,
    start_process,
    write_sites,
    write_study,
)
from fedquilt.deploy.nvflare.session import Session
from fedquilt.deploy.study import Study, read_study
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.privacy.disclosure_floor import DisclosureFloor
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.simulation import Simulation, simulate
from fedquilt.training.rounds import start_server

FIRST, JOINS, EXCLUDED = ("client-0", "client-1", "client-2"), "client-3", "client-0"
WAIT_SECONDS = 240.0  # for a round
START_SECONDS = 120.0  # for the server
RECIPE: dict[str, Any] = {
    "rounds": 14,
    "seed": 11,
    "min_cell": 10,
    "data": {"name": "digits-mosaic", "train": 400, "seed": 11},
    "partition": {"name": "iid", "clients": 4},
    "annotation": {
        "name": "listed",
        "annotates": {
            "0": ["digit 0", "digit 1"],
            "1": ["digit 2", "digit 3"],
            "2": ["digit 4", "digit 0"],
            "3": ["digit 1", "digit 2"],
        },
    },
    "model": {"backbone": "small-cnn"},
    "views": {"weak": "plain"},
    "method": {
        "name": "fedmlp",
        "warmup_rounds": 7,
        "warmup_views": 1,
        "negative_share": 0.03,
        "positive_share": 0.03,
        "training": {"lr": 3e-3, "epochs": 2},
    },
}

console = Console(highlight=False)


class Demo:
    """The study's folder and processes; everything ends with the ``with`` block."""

    def __init__(self, out: Path) -> None:
        if out.exists():
            raise UserError(f"{out} already exists; give a new folder")
        self.out, self.kits = out, out / "kits"
        self.simulation = simulate(recipe_from(RECIPE), out / "cache")
        self.settings = write_sites(self.simulation, out / "sites", {"min_cell": 10})
        (out / "recipe.json").write_text(json.dumps(RECIPE, indent=2))
        port = free_port()
        self.study_file, self.joined_file = (
            write_study(out / name, "recipe.json", self.simulation, sites, port)
            for name, sites in (("study.toml", FIRST), ("joined.toml", (*FIRST, JOINS)))
        )
        self.study, self.joined = read_study(self.study_file), read_study(self.joined_file)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._submit: subprocess.Popen[bytes] | None = None
        self._session = ExitStack()

    def __enter__(self) -> Demo:
        return self

    def __exit__(self, *details: object) -> None:
        self.end()

    def do(self, *words: str | Path) -> None:
        """Run a command as a user would, and show it."""
        shown = [str(each).removeprefix(f"{self.out}/") for each in words]
        console.print(f"[bold]$ fedquilt {shlex.join(shown)}[/bold]")
        subprocess.run([*FEDQUILT, *map(str, words)], check=True)

    def start(self, *sites: str) -> None:
        """Start the server and these sites."""
        each: list[tuple[str, ...]] = [("server", "server", "start", str(self.kits / "server"))]
        each += [
            (name, "site", "start", str(self.kits / name), str(self.settings[name]))
            for name in sites
        ]
        self._processes += [start_process(self.out, *one) for one in each]

    def submit(self, study: Path, *options: str) -> None:
        """Open a connection for decisions, which a command would open, and submit the study."""
        kit = Kit(self.kits / "coordinator")
        self._coordinator = self._session.enter_context(Session(kit, read_study(study)))
        self._coordinator.connect(START_SECONDS)
        command = ["deploy", "submit", str(study), "--kit", str(self.kits / "coordinator")]
        self._submit = subprocess.Popen([*FEDQUILT, *command, *options])

    def coordinate(self, verb: str, *words: str | Path, study: Path) -> None:
        self.do("deploy", verb, study, *words, "--kit", self.kits / "coordinator")

    def decide(self, kind: str, reason: str, **facts: Any) -> None:
        """Decide as `fedquilt deploy` does: starting the command takes as long as many rounds."""
        words = [kind, *facts.values(), "--reason", reason]
        console.print(f"[bold]$ fedquilt deploy {shlex.join(words)}[/bold]")
        self._coordinator.decide(kind, reason, **facts)

    def wait_for_round(self, number: int) -> None:
        """Return when so many rounds are done."""
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.history()) < number:
            if time.monotonic() > deadline or (self._submit and self._submit.poll() is not None):
                raise UserError(f"round {number} was not reached; see the logs in {self.out}")
            time.sleep(0.1)

    def wait_for_end(self) -> None:
        assert self._submit is not None
        if self._submit.wait() != 0:
            raise UserError(f"the study did not finish; see the logs in {self.out}")

    def history(self) -> list[dict[str, Any]]:
        path = Kit(self.kits / "server").run_folder(self.study) / "history.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def end(self) -> None:
        if self._submit is not None and self._submit.poll() is None:
            self._submit.send_signal(signal.SIGINT)
            self._submit.wait()
        self._session.close()
        end_processes(self._processes)
        self._processes, self._submit = [], None


def main(out: Path) -> None:
    began = time.perf_counter()
    with Demo(out) as demo:
        console.print(f"wrote four sites with 100 images each; all commands run in {out}")
        demo.do("deploy", "provision", demo.study_file, "--out", demo.kits, "--demo-kits")
        demo.start(*FIRST)
        demo.submit(demo.study_file)
        demo.wait_for_round(3)
        join(demo)
        demo.wait_for_round(len(demo.history()) + 3)
        demo.decide("exclude", "its key may be stolen", site=EXCLUDED)
        demo.wait_for_end()
        demo.coordinate("fetch", "--out", out / "deployed", study=demo.joined_file)
        demo.end()
        show_cohorts(demo.history())
        console.print("running the same rounds in one process")
        local = weights_of_one_process(demo)
        difference = compare(out / "deployed", local, demo.simulation)
    console.print(f"largest difference of any weight: {difference:g}")
    console.print(f"finished in {time.perf_counter() - began:.0f} s; all files are in {out}")
    if difference > 1e-6:
        raise UserError("the two runs differ by more than 1e-6")


def join(demo: Demo) -> None:
    """Let a fourth site join: pause, propose, sign, adopt, and go on with the new kits."""
    out, kits, amendment = demo.out, demo.kits, demo.out / "amendment.json"
    demo.decide("pause", f"{JOINS} joins")
    demo.coordinate("amend", "--reason", "more images", "--out", amendment, study=demo.joined_file)
    for site in FIRST:
        demo.do("site", "agree", kits / site, amendment, "--out", out / "signed", "--yes")
    demo.do("site", "request", JOINS, organisation(JOINS), "--out", out / "keys")
    request = (out / "keys" / f"{JOINS}.csr", "--authority", kits / "authority", "--out", kits)
    demo.do("deploy", "approve", demo.joined_file, *request)
    demo.do("site", "accept", kits / JOINS, "--key", out / "keys" / f"{JOINS}.key")
    demo.end()
    signed = [out / "signed" / f"{site}.agreed.json" for site in FIRST]
    folders = ("--authority", kits / "authority", "--kits", kits)
    demo.do("deploy", "adopt", amendment, *signed, *folders)
    demo.start(*FIRST, JOINS)
    demo.coordinate("resume", "--reason", "all have signed", study=demo.joined_file)
    demo.submit(demo.joined_file, "--resume")


def show_cohorts(history: list[dict[str, Any]]) -> None:
    """Print which sites took part in which rounds."""
    table = Table(title="Sites by round")
    for column in ("rounds", "sites"):
        table.add_column(column)
    first = 0
    for number, record in enumerate(history):
        following = history[number + 1]["cohort"] if number + 1 < len(history) else None
        if record["cohort"] != following:
            table.add_row(
                f"{history[first]['round']} to {record['round']}", ", ".join(record["cohort"])
            )
            first = number + 1
    console.print(table)


def weights_of_one_process(demo: Demo) -> Weights:
    """Run the study's rounds with the study's cohorts, without any message."""
    method, states = demo.study.recipe.method, StatesInMemory()

    def engine(study: Study) -> SequentialEngine:
        clients = {name: demo.simulation.clients[name] for name in study.site_names}
        floor = DisclosureFloor(study.recipe.min_cell)
        return SequentialEngine(study.task, clients, states=states, transforms=(floor,))

    server = start_server(method, demo.study.task, engine(demo.study))
    everyone = engine(demo.joined)
    server = method.surveyed_again(server, everyone.survey(method))
    for record in demo.history():
        totals = everyone.exchange(
            method, method.broadcast(server), record["round"] - 1, sorted(record["cohort"])
        )
        server = method.update(server, totals)
    weights = method.global_weights(server)
    assert weights is not None
    return weights


def compare(deployed: Path, local: Weights, simulation: Simulation) -> float:
    """Print the metrics per class; return the largest difference of any weight."""
    result = json.loads((deployed / "result.json").read_text(encoding="utf-8"))
    table = Table(title="AUC per class, on the server's test images")
    for column in ("class", "annotated by", "AUC"):
        table.add_column(column)
    aucs = result["reports"]["global"]["per_class"]["auc"]
    for name, auc in zip(simulation.task.classes, aucs):
        annotators = [
            client
            for client, data in simulation.clients.items()
            if name in annotated_classes(data, simulation.task.classes)
        ]
        table.add_row(name, ", ".join(annotators), f"{auc:.4f}")
    console.print(table)
    weights = load_file(deployed / "model.safetensors")
    return max(float((weights[name] - local[name]).abs().max()) for name in weights)


def new_folder() -> Path:
    first = folder = Path("runs") / "deploy-demo"
    number = 2
    while folder.exists():
        folder = first.with_name(f"{first.name}-{number}")
        number += 1
    return folder


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]) if len(sys.argv) > 1 else new_folder())
    except UserError as error:
        sys.exit(f"error: {error}")
    except subprocess.CalledProcessError:
        sys.exit("the study did not finish; see the logs beside its study.toml")
