"""A study with one model per site ends with a model at every site and none at the server."""

from __future__ import annotations

from pathlib import Path

from digits_recipe import recipe_settings
from running_study import RunningStudy

from fedquilt.core.tree import Weights
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.trained_models import load_weights
from fedquilt.training.rounds import run_rounds, start_server


def test_every_site_writes_the_model_of_one_process(tmp_path: Path) -> None:
    with RunningStudy(tmp_path, recipe_settings("flexible-fl")) as study:
        study.reset()
        out = tmp_path / "fetched"
        assert study.submit("--out", str(out)).wait(300) == 0, study.said("submit")
        assert "fedquilt site model KIT SITE_TOML" in study.said("submit")
        assert not list(out.glob("model*"))
        _lose_the_model_and_get_it_again(study, "client-1")
        expected = _in_one_process(study)
        for name in study.study.site_names:
            folder = tmp_path / f"model-of-{name}"
            words = ("site", "model", *study.files_of(name), "--out", str(folder))
            assert study.start("model", *words).wait(90) == 0, study.said("model")
            assert f"{name}'s own model after 3 of 3 rounds" in study.said("model")
            image = next((tmp_path / "sites" / name / "images").glob("*.png"))
            run = read_run(folder)
            prediction = run.predict([image], client=name)
            assert prediction.classes == study.study.classes
            weights = load_weights(run.folder, run.models.card, name)
            assert _difference(weights, expected[name]) <= 1e-6


def _lose_the_model_and_get_it_again(study: RunningStudy, site: str) -> None:
    """A finished study sends the final model again to all connected sites."""
    (card,) = (study.folder / "sites" / site / "fedquilt-site").rglob("model.json")
    card.unlink()
    assert study.submit("--resume").wait(200) == 0, study.said("submit")
    assert card.exists()
    assert len(study.history()) == 3


def _in_one_process(study: RunningStudy) -> dict[str, Weights]:
    method, task = study.study.recipe.method, study.simulation.task
    engine = SequentialEngine(task, study.simulation.clients, states=StatesInMemory())
    server = start_server(method, task, engine)
    for round_ in run_rounds(method, task, engine, server):
        server = round_.server
    return dict(engine.personal_weights(method, method.broadcast(server)))


def _difference(one: Weights, two: Weights) -> float:
    assert one.keys() == two.keys()
    return max(float((one[name] - two[name]).abs().max()) for name in one)
