"""Private training keeps the contracts: engines agree, a resumed run gives the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.tiny_runs import make_run, tiny_settings

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run

METHODS = {
    "fedavg": {"positive_weight": "none", "weighting": "uniform"},
    "fedavg-pl": {"positive_weight": "none", "weighting": "uniform", "head_rows": "annotators"},
    "fedprox": {"positive_weight": "none", "weighting": "uniform"},
    "surgical-aggregation": {"head_steps": 2},
    "quilt": {"weighting": "uniform", "logit_adjustment": False, "both_views": True},
}


def settings(method: str, **changes):
    training = {"batch_size": 10, "lr": 3e-3}
    return tiny_settings(method) | dict(
        method={"name": method, "training": training, **METHODS[method]},
        privacy={"epsilon": 5.0, "delta": 1e-3, "training": True},
        **changes,
    )


def weights_of(folder: Path):
    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("method", METHODS)
def test_engines_and_a_resumed_run_agree(method: str, tmp_path: Path) -> None:
    recipe = recipe_from(settings(method))
    threads = torch.get_num_threads()
    run(recipe, tmp_path / "one", engine="sequential")
    try:
        torch.set_num_threads(2)
        run(recipe, tmp_path / "threads", engine="threaded")
    finally:
        torch.set_num_threads(threads)

    def stop(event, facts) -> None:
        if event == "round" and facts["round"] == 1:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        run(recipe, tmp_path / "resumed", engine="sequential", observe=stop)
    run(recipe, tmp_path / "resumed", engine="sequential", resume=True)
    expected = weights_of(tmp_path / "one")
    for other in ("threads", "resumed"):
        assert same_bits(weights_of(tmp_path / other), expected), other
    history = (tmp_path / "one" / "history.jsonl").read_text().splitlines()
    assert all(json.loads(line)["loss"] is None for line in history)


def test_noise_changes_the_model_and_a_run_cannot_be_extended(tmp_path: Path) -> None:
    private = settings("fedavg")
    run(recipe_from(private), tmp_path / "private")
    plain = {key: value for key, value in private.items() if key != "privacy"}
    run(recipe_from(plain), tmp_path / "plain")
    assert not same_bits(weights_of(tmp_path / "private"), weights_of(tmp_path / "plain"))
    with pytest.raises(UserError, match="the noise of the run"):
        run(recipe_from(private | {"rounds": 3}), tmp_path / "private", resume=True)


def test_a_graph_of_steps_cannot_draw_batches(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no CUDA graph can replay"):
        run(recipe_from(settings("fedavg")), tmp_path / "graph", engine="cuda-graph")
    with pytest.raises(UserError, match="fills in labels"):
        make_run(tmp_path / "mlp", "fedmlp", privacy={"epsilon": 1.0, "training": True})
