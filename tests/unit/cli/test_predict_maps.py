"""``fedquilt predict --explain`` and ``--attention``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from support.tiny_runs import make_run
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.runs.finished_run import Run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return make_run(tmp_path_factory.mktemp("runs") / "fednca-ml", "fednca-ml")


@pytest.fixture
def image(tmp_path: Path) -> str:
    path = tmp_path / "mosaic [1].png"
    Image.linear_gradient("L").save(path)
    return str(path)


def predict(run: Run, *arguments: str):
    return CliRunner().invoke(app, ["predict", str(run.path), *arguments])


def test_a_picture_for_every_image(finished: Run, image: str, tmp_path: Path):
    result = predict(finished, image, image, "--attention", str(tmp_path / "maps"))
    assert result.exit_code == 0
    pictures = [tmp_path / "maps" / f"{number}-mosaic [1].png" for number in (1, 2)]
    assert sorted((tmp_path / "maps").iterdir()) == pictures
    for picture in pictures:
        assert f"attention maps: {picture}" in result.stdout
        assert picture.read_bytes().startswith(b"\x89PNG")


def test_json_names_the_pictures(finished: Run, image: str, tmp_path: Path):
    printed = json.loads(predict(finished, image, "--attention", str(tmp_path), "--json").stdout)
    assert printed["pictures"] == [str(tmp_path / "1-mosaic [1].png")]
    assert "pictures" not in json.loads(predict(finished, image, "--json").stdout)


def test_other_heads_are_refused(image: str, tmp_path: Path):
    run = make_run(tmp_path / "run", "fedavg")
    result = predict(run, image, "--attention", str(tmp_path / "maps"))
    assert result.exit_code == 1
    assert "only the head 'ladm' has attention maps" in result.stderr
    assert not (tmp_path / "maps").exists()


def test_heat_maps_of_an_ordinary_network(tmp_path: Path, image: str):
    run = make_run(tmp_path / "run", "fedavg")
    result = predict(run, image, "--explain", str(tmp_path / "maps"))
    assert result.exit_code == 0, result.output
    picture = tmp_path / "maps" / "1-mosaic [1].png"
    assert f"heat maps: {picture}" in result.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_panel_names_class_probability_decision_and_threshold(
    tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch
):
    run = make_run(tmp_path / "run", "fedavg")
    titles: list[str] = []
    monkeypatch.setattr(
        "fedquilt.reports.class_map_picture.save_class_maps",
        lambda pixels, maps, names, path, kind: titles.extend(names),
    )
    arguments = ("--explain", str(tmp_path), "--threshold", "0.25", "--json")
    rows = json.loads(predict(run, image, *arguments).stdout)["predictions"]
    for title, row in zip(titles, rows):
        assert title.startswith(f"{row['class']}: {100 * row['probability']:.1f} %\n")
        assert title.endswith(f"{row['decision']}, from 25.0 %")


def test_one_folder_for_both_kinds_is_refused(finished: Run, image: str):
    result = predict(finished, image, "--explain", "maps", "--attention", "maps")
    assert "name the same folder" in result.stderr
