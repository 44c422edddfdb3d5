"""Short runs on digits, stopped at a round, and compared with whole ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.run_folder import RunFolder

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"server_step": {"momentum": 0.5}},
    "fedmlp": {
        "warmup_rounds": 1,
        "negative_share": 0.3,
        "positive_share": 0.3,
        "adaptive_threshold": False,
    },
    "scaffold": {"training": {"keep_optimizer": True}},
    "local-only": {},
}
Observer = Callable[[str, dict[str, Any]], None]


def recipe(method: str = "fedmlp", **changes: Any) -> Recipe:
    settings: dict[str, Any] = {"name": method} | METHODS.get(method, {})
    settings["training"] = {"batch_size": 16, "lr": 0.01} | settings.get("training", {})
    return recipe_from(
        {
            "data": {"name": "digits-mosaic", "train": 60, "test": 40, "classes": 3},
            "partition": {"name": "iid", "clients": 3},
            "annotation": {"name": "missing", "missing": 2, "one_to_one": True},
            "views": {"weak": "plain"},
            "method": settings,
            "rounds": 4,
        }
        | changes
    )


def stop_after(round_count: int) -> Observer:
    """Return a callback that simulates Ctrl-C after the given round."""

    def observe(event: str, facts: dict[str, Any]) -> None:
        if event == "round" and facts["round"] == round_count:
            raise KeyboardInterrupt

    return observe


def result_of(folder: RunFolder) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(folder.result.read_text())
    return result


def untimed(folder: RunFolder) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in record.items() if key != "seconds"}
        for record in folder.history.read()
    ]


def assert_same_run(one: RunFolder, two: RunFolder) -> None:
    """Check for bitwise equal models, equal histories and equal results."""
    files = {path.relative_to(one.path) for path in one.path.rglob("model*.safetensors")}
    files |= {path.relative_to(one.path) for path in (one.path / "models").glob("*")}
    assert files
    for file in files:
        assert (one.path / file).read_bytes() == (two.path / file).read_bytes()
    assert untimed(one) == untimed(two)
    varying = {"seconds", "environment"}
    first, second = result_of(one), result_of(two)
    assert first.keys() == second.keys()
    for key in first.keys() - varying:
        assert first[key] == second[key], key
