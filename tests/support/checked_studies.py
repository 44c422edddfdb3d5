"""Small studies whose sites are checked first, and then run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.settings import plain
from fedquilt.core.version import VERSION
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.demo_files import annotated_classes, write_sites
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.site.data import load_site_data
from fedquilt.deploy.site.memory import SiteMemory
from fedquilt.deploy.site.settings import SiteSettings, read_site_settings
from fedquilt.deploy.study import Study, study_from
from fedquilt.methods import all_methods
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.simulation import simulate
from fedquilt.training.method import Method

SITE = "client-0"
FLOOR = 4
DATA: dict[str, Any] = {
    "data": {
        "name": "digits-mosaic",
        "classes": 3,
        "train": 40,
        "test": 2,
        "digits_per_image": [1, 2],
    },
    "partition": {"name": "iid", "clients": 2},
    "annotation": {
        "name": "listed",
        "annotates": {"0": ["digit 2", "digit 0"], "1": ["digit 1", "digit 0"]},
    },
}


class Hospitals:
    """Two sites on disk, as the demo writes them."""

    def __init__(self, folder: Path) -> None:
        simulation = simulate(recipe_from({**DATA, "method": {"name": "fedavg"}}), folder / "cache")
        written = write_sites(simulation, folder / "sites", {"min_cell": FLOOR})
        self.settings: dict[str, SiteSettings] = {
            name: read_site_settings(path) for name, path in written.items()
        }
        self.classes = simulation.task.classes
        self.annotates = {
            name: annotated_classes(data, self.classes) for name, data in simulation.clients.items()
        }

    def study(self, method: Method, **recipe: object) -> Study:
        return study_from(
            {
                "name": "digits",
                "classes": list(self.classes),
                "images": {"size": 16, "channels": 1},
                "sites": [
                    {"name": name, "organisation": "x", "annotates": annotates}
                    for name, annotates in self.annotates.items()
                ],
                "server": {"host": "localhost", "bind": "127.0.0.1"},
                "recipe": {
                    "rounds": 3,
                    "model": {"backbone": "small-cnn"},
                    "method": plain(method, {Method: ("method", all_methods())}),
                    **recipe,
                },
            }
        )

    def sites(self, study: Study, folder: Path) -> dict[str, SiteClient]:
        return {
            name: SiteClient(
                study,
                load_site_data(study, name, settings),
                SiteMemory.of(folder / name / "states", study, settings.policy, folder / name),
                settings.policy,
                AuditLog(folder / name / "audit.jsonl"),
            )
            for name, settings in self.settings.items()
        }


def kit_of(study: Study, folder: Path) -> Kit:
    kit = Kit(folder)
    kit.startup.mkdir(parents=True)
    write_json(kit.study_file, study.to_dict())
    write_json(kit.card, {"role": SITE, "study": study.name, "fedquilt": VERSION})
    return kit


def audit_log(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / SITE / "audit.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
