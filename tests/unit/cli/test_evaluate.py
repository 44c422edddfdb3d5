"""``fedquilt evaluate`` on a run's own test images."""

from __future__ import annotations

import json

import pytest
from support.tiny_runs import CLASSES, CLIENTS, make_run
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import Run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "fedmlp")


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "local", "local-only")


def evaluate(run: Run, *arguments: str):
    return CliRunner().invoke(app, ["evaluate", str(run.path), *arguments])


def test_numbers_are_those_of_the_run(finished: Run):
    evaluated = json.loads(evaluate(finished, "--json").stdout)
    assert evaluated["averages"] == finished.result["metrics"]
    assert evaluated["images"] == 40
    assert [row["annotators"] for row in evaluated["classes"]] == [[name] for name in CLIENTS]


def test_table_has_a_row_per_class(finished: Run):
    result = evaluate(finished)
    assert result.exit_code == 0, result.output
    assert all(name in result.stdout for name in CLASSES)
    assert "40 images; present: probability of at least 50.0 %" in result.stdout


def test_threshold_changes_decisions_but_not_the_ranking(finished: Run):
    evaluated = json.loads(evaluate(finished, "--threshold", "0", "--json").stdout)
    assert evaluated["averages"]["bacc"] == 0.5  # everything is present: recall 1, specificity 0
    assert evaluated["averages"]["macro_auc"] == finished.result["metrics"]["macro_auc"]


def test_models_of_clients_are_averaged(personal: Run):
    evaluated = json.loads(evaluate(personal, "--json").stdout)
    assert evaluated["averages"]["macro_auc"] == personal.result["metrics"]["macro_auc"]
    assert list(evaluated["reports"]) == list(CLIENTS)


def test_one_client_can_be_chosen(personal: Run):
    evaluated = json.loads(evaluate(personal, "--client", "client-1", "--json").stdout)
    assert evaluated["reports"] == {"client-1": personal.result["reports"]["client-1"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--threshold", "2"], "--threshold must be a probability from 0 to 1, found 2"),
        (["--labels", "some.csv"], "own data need both --data"),
        (["--client", "client-0"], "one global model"),
        (["--device", "gpu"], "--device must be cpu or cuda"),
    ],
)
def test_mistakes_are_explained(finished: Run, arguments: list[str], message: str):
    result = evaluate(finished, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_scores_can_be_written_again(personal: Run):
    kept = personal.path / "scores" / "test.npz"
    before = kept.read_bytes()
    kept.unlink()
    result = evaluate(personal, "--keep-scores")
    assert result.exit_code == 0, result.output
    assert kept.read_bytes() == before


def test_scores_are_of_all_models_on_the_test_images(personal: Run):
    result = evaluate(personal, "--keep-scores", "--client", "client-1")
    assert result.exit_code != 0
    assert "leave out --data, --client and --model" in result.stderr
