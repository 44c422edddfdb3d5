"""A small recipe and study with three sites and three classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedquilt.deploy.nvflare.demo_files import annotated_classes, free_port
from fedquilt.deploy.study import Study, study_from
from fedquilt.runs.simulation import Simulation

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


def digits_study(
    simulation: Simulation,
    settings: Mapping[str, Any],
    rules: Mapping[str, Any],
    host: str,
    keys: Mapping[str, str],
) -> Study:
    """The study of the simulation's clients; with keys, their numbers of images are agreed too."""
    classes = simulation.task.classes
    return study_from(
        {
            "name": "digits",
            "classes": list(classes),
            "images": {"size": 16, "channels": 1},
            "sites": [
                {
                    "name": name,
                    "organisation": name.replace("-", "_"),
                    "annotates": annotated_classes(data, classes),
                    **({"key": keys[name], "images": len(data)} if keys else {}),
                }
                for name, data in simulation.clients.items()
            ],
            "server": {"host": host, "port": free_port(), "bind": "127.0.0.1"},
            "rules": QUICK | dict(rules),
            "recipe": settings,
            "evaluate_on_server": True,
        }
    )
