"""A whole study on this machine: server and sites as separate processes over TLS on loopback."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
from digits_recipe import digits_study

from fedquilt.core.atomic_files import write_json
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.demo_files import FEDQUILT, write_sites
from fedquilt.deploy.nvflare.provision import provision
from fedquilt.deploy.secure.site_key import make_key
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.simulation import Simulation, simulate

MARK = "FEDQUILT_TEST_STUDY"  # environment variable of every process of a study


class RunningStudy:
    """Ends everything it started with the ``with`` block; the study may run several times."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        rules: Mapping[str, Any] | None = None,
        host: str = "localhost",
    ) -> None:
        self.folder = folder
        self.simulation: Simulation = simulate(recipe_from(settings), folder / "cache")
        self.site_settings = write_sites(self.simulation, folder / "sites", {"min_cell": 1})
        keys = {}
        if settings.get("summation") == "secure":
            keys = {name: _give_key(path) for name, path in self.site_settings.items()}
        self.study = digits_study(self.simulation, settings, rules or {}, host, keys)
        self.study_file = folder / "study.json"
        write_json(self.study_file, self.study.to_dict())
        self.kits = provision(self.study, folder / "kits")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> RunningStudy:
        return self

    def __exit__(self, *details: object) -> None:
        self.kill_all()
        left = [each for each in psutil.process_iter(["cmdline", "environ"]) if self._is_ours(each)]
        for each in left:
            each.kill()
        assert not left, f"processes were left behind: {[each.info['cmdline'] for each in left]}"

    def _is_ours(self, process: psutil.Process) -> bool:
        """Recognise a process, also an indirect child, by its arguments or its environment."""
        arguments, environment = process.info["cmdline"] or (), process.info["environ"] or {}
        ours = str(self.folder)
        return environment.get(MARK) == ours or any(ours in each for each in arguments)

    def start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.out").open("wb") as out:
            process = subprocess.Popen(
                [*FEDQUILT, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"OMP_NUM_THREADS": "1", MARK: str(self.folder)},
            )
        self.processes[name] = process
        return process

    def start_server(self) -> None:
        self.start("server", "server", "start", str(self.kits["server"]))

    def start_site(self, name: str) -> subprocess.Popen[bytes]:
        return self.start(name, "site", "start", *self.files_of(name))

    @property
    def coordinator_kit(self) -> tuple[str, str]:
        return "--kit", str(self.kits["coordinator"])

    def files_of(self, site: str) -> tuple[str, str]:
        return str(self.kits[site]), str(self.site_settings[site])

    def start_all(self) -> None:
        """Start all processes that are not running; return when all sites have joined."""
        if not self.is_running("server"):
            self.start_server()
        for name in self.study.site_names:
            if not self.is_running(name):
                self.start_site(name)
        for name in self.study.site_names:
            self.wait_until(lambda each=name: "has joined" in self.said(each), 120, name)

    def reset(self) -> None:
        """Start all processes and delete the run and all states."""
        if self.is_running("submit"):  # left by a failed test: its job may still run
            self.kill_all()
        shutil.rmtree(self.run_folder, ignore_errors=True)
        for name in self.study.site_names:
            work = self.folder / "sites" / name / "fedquilt-site"
            shutil.rmtree(work / "states", ignore_errors=True)
            (work / "audit.jsonl").unlink(missing_ok=True)
        self.start_all()

    def is_running(self, name: str) -> bool:
        return name in self.processes and self.processes[name].poll() is None

    def kill_all(self) -> None:
        for name in list(self.processes):
            self.kill(name)

    def submit(self, *options: str, **rules: float) -> subprocess.Popen[bytes]:
        """Submit the study, if given with other rules, which need no new kits."""
        study_file = self.study_file
        if rules:
            study_file = self.folder / "other_rules.json"
            settings = self.study.to_dict()
            write_json(study_file, settings | {"rules": settings["rules"] | rules})
        return self.start(
            "submit", "deploy", "submit", str(study_file), *self.coordinator_kit, *options
        )

    def status(self) -> str:
        """Return the output of ``fedquilt deploy status``."""
        process = self.start(
            "status", "deploy", "status", str(self.study_file), *self.coordinator_kit
        )
        assert process.wait(90) == 0, self.said("status")
        return self.said("status")

    def kill(self, name: str) -> None:
        """Kill the process and all its children at once, like a power cut."""
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
        path = self.folder / f"{name}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def run_folder(self) -> Path:
        return Kit(self.kits["server"]).run_folder(self.study)

    def history(self) -> list[dict[str, Any]]:
        path = self.run_folder / "history.jsonl"
        if not path.exists():
            return []
        lines = path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def wait_until(
        self, condition: Callable[[], object], seconds: float, what: str, interval: float = 0.2
    ) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            said = self.said("submit")
            assert time.monotonic() < deadline, f"no {what} within {seconds} s: {said}"
            time.sleep(interval)

    def wait_for_round(self, number: int, seconds: float = 150.0) -> None:
        self.wait_until(lambda: len(self.history()) >= number, seconds, f"round {number}")

    def wait_for_training(self, site: str) -> None:
        """Wait until the site has received a training request and has not answered it."""
        audit_log = self.folder / "sites" / site / "fedquilt-site" / "audit.jsonl"

        def is_training() -> bool:
            last = audit_log.read_text().rpartition('{"time"')[2]
            return '"event": "received", "kind": "train"' in last

        self.wait_until(is_training, 60, f"training at {site}", interval=0.01)


def _give_key(settings: Path) -> str:
    """Make a site's key for secure sums and name it in its site.toml; return the public half."""
    path, public = make_key(settings.parent.name, settings.parent)
    settings.write_text(f'sums_key = "{path.name}"\n{settings.read_text()}')
    return public
