"""A study that validates at its sites, in this process, and the simulation it must equal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from support.remote_sites import OPEN, CallingChannel
from support.tiny_runs import tiny_settings

from fedquilt.data.allocation import Holding
from fedquilt.data.client_data import ClientData
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.nvflare.demo_files import annotated_classes
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.site.data import SiteData
from fedquilt.deploy.site.memory import SiteMemory
from fedquilt.deploy.study import Study, study_from
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.simulation import Simulation, simulate


class Consortium:
    """The clients of a simulation as the sites of a study.

    By default the learning rate is so high that the last round is not the best.
    """

    def __init__(
        self, folder: Path, method: str = "fedavg-pl", lr: float = 0.1, **changes: Any
    ) -> None:
        training = {"batch_size": 10, "lr": lr}
        self.settings = {
            **tiny_settings(),
            "data": {"name": "digits-mosaic", "classes": 3, "train": 150, "test": 40},
            "method": {"name": method, "training": training},
            "validation": {"share": 0.3},
            "rounds": 6,
            **changes,
        }
        self.recipe, self.folder = recipe_from(self.settings), folder
        self.simulation: Simulation = simulate(self.recipe, folder / "cache")

    def study(self, **changes: Any) -> Study:
        classes = self.simulation.task.classes
        sites = [
            {
                "name": name,
                "organisation": name.replace("-", "_"),
                "annotates": annotated_classes(data, classes),
            }
            for name, data in self.simulation.clients.items()
        ]
        return study_from(
            {
                "name": "digits",
                "classes": list(classes),
                "images": {"size": 16, "channels": 1},
                "sites": sites,
                "server": {"host": "localhost", "bind": "127.0.0.1"},
                "recipe": self.settings,
                **changes,
            }
        )

    def site_data(self, name: str) -> SiteData:
        return SiteData(
            self.simulation.clients[name], self.simulation.validation[name], self._test_of(name)
        )

    def _test_of(self, name: str) -> ClientData:
        """Every third test image, with the labels of the classes that the site annotates."""
        names, test = list(self.simulation.clients), self.simulation.splits.test
        rows = torch.arange(names.index(name), len(test), len(names))
        annotates = self.simulation.clients[name].known.any(0)
        return ClientData.of(test, Holding(name, rows, annotates.repeat(len(rows), 1)))

    def sites(
        self, study: Study, policies: Mapping[str, SitePolicy] | None = None, place: str = "sites"
    ) -> dict[str, SiteClient]:
        clients = {}
        for name in study.site_names:
            policy, folder = (policies or {}).get(name, OPEN), self.folder / place / name
            clients[name] = SiteClient(
                study,
                self.site_data(name),
                SiteMemory.of(folder / "states", study, policy, folder),
                policy,
                AuditLog(folder / "audit.jsonl"),
            )
        return clients

    def run(
        self,
        study: Study,
        channel: CallingChannel,
        name: str = "run",
        *,
        resume: bool = False,
        **further: Any,
    ) -> Path:
        run = ServerRun(study, self.folder / name, channel, **further)
        run.run(resume=resume)
        return run.folder.path
