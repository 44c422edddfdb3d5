"""``fedquilt predict``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from support.tiny_runs import CLASSES, make_run
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import Run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "fedmlp")


@pytest.fixture
def image(finished: Run, tmp_path: Path) -> str:
    path = tmp_path / "mosaic [1].png"  # square brackets are markup to rich
    pixels = finished.recipe.data.load(Path("unused")).test.images[0, 0]
    Image.fromarray(pixels.numpy()).save(path)
    return str(path)


def predict(run: Run, *arguments: str):
    return CliRunner().invoke(app, ["predict", str(run.path), *arguments])


def test_json_is_what_the_run_predicts(finished: Run, image: str):
    printed = json.loads(predict(finished, image, image, "--json").stdout)
    assert printed["threshold"] == 0.5
    assert printed["predictions"] == finished.predict([image, image]).rows()


def test_every_class_is_shown_with_its_verdict(finished: Run, image: str):
    text = predict(finished, image).stdout
    assert image in text
    for row in finished.predict([image]).rows():
        line = next(line for line in text.splitlines() if row["class"] in line)
        verdict = "present" if row["present"] else "absent"
        assert line.split()[-2:] == [f"{100 * row['probability']:.1f}", verdict]


def test_threshold_decides(finished: Run, image: str):
    text = predict(finished, image, "--threshold", "0").stdout
    assert text.count(" present ") == len(CLASSES)
    assert "probability of at least 0.0 %" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.png"], "there is no image file nowhere.png"),
        (["x.png", "--client", "client-0"], "there is no image file x.png"),
        (["x.png", "--threshold", "-1"], "--threshold must be a probability"),
    ],
)
def test_mistakes_are_explained(finished: Run, arguments: list[str], message: str):
    result = predict(finished, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr


def test_a_client_must_be_chosen(tmp_path: Path, image: str):
    personal = make_run(tmp_path / "local", "local-only")
    assert "choose one with client=NAME (--client): client-0" in predict(personal, image).stderr
    assert predict(personal, image, "--client", "client-2").exit_code == 0
