"""``fedquilt data check``: output, JSON, picture and exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.folder_files import make_folder, write_csv
from typer.testing import CliRunner

from fedquilt.cli.data import app

ROWS = "image,patient,site,A,B\n" + "".join(
    f"{i}.png,p{i // 2},{'MN'[i % 4 // 2]},{i % 2},{i % 3 % 2}\n" for i in range(60)
)
COLUMNS = ["--patient-column", "patient", "--site-column", "site", "--size", "4"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_folder(tmp_path, ROWS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*options: str) -> Any:
    return CliRunner().invoke(app, ["check", "images", "--labels", "labels.csv", *options])


def test_valid_data_exit_with_0_and_draw_the_map(folder: Path) -> None:
    result = run(*COLUMNS)
    assert result.exit_code == 0, result.output
    assert "60 images, 2 classes, 2 sites, 30 patients" in result.output
    assert "Annotation map" in result.output
    assert "annotation map written to annotation_map.png" in result.output
    assert "the data can be used" in result.output
    assert (folder / "annotation_map.png").is_file()


def test_picture_options(folder: Path) -> None:
    assert run(*COLUMNS, "--no-picture").exit_code == 0
    assert not (folder / "annotation_map.png").exists()
    assert run(*COLUMNS, "--picture", "here.png").exit_code == 0
    assert (folder / "here.png").is_file()
    result = run(*COLUMNS, "--picture", "no/such/folder/here.png")
    assert result.exit_code == 1
    assert "the picture could not be written" in result.output


def test_problems_are_shown_with_advice_and_exit_with_1(folder: Path) -> None:
    (folder / "images" / "4.png").unlink()
    write_csv(folder / "labels.csv", ROWS.replace("7.png,p3,N,1,1", "7.png,p3,N,2,1"))
    result = run(*COLUMNS)
    assert result.exit_code == 1
    output = " ".join(result.output.split())
    assert "line 6: no such file: '4.png'" in output
    assert "line 9, column 'A': '2'" in output
    assert "what to do: expected 1 (present)" in output
    assert "problems to fix before use: 2" in output


def test_json_prints_only_json(folder: Path) -> None:
    result = run(*COLUMNS, "--json")
    assert result.exit_code == 0
    content = json.loads(result.stdout)
    assert content["ok"] is True
    assert content["picture"] == "annotation_map.png"
    assert content["summary"]["images"] == 60
    assert content["annotation_map"]["classes"] == ["A", "B"]
    (folder / "images" / "4.png").unlink()
    result = run(*COLUMNS, "--json", "--no-picture")
    assert result.exit_code == 1
    content = json.loads(result.stdout)
    assert content["problems"][0]["kind"] == "missing-image"
    assert content["picture"] is None


def test_columns_and_names(folder: Path) -> None:
    write_csv(folder / "names.toml", '[labels]\nB = "Hernia"\n')
    more = ["--ignore-columns", "patient, site", "--label-names", "names.toml", "--no-picture"]
    result = run("--classes", "A,Hernia", "--json", "--skip-images", *more)
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["annotation_map"]["classes"] == ["A", "Hernia"]
    assert content["summary"]["depths"] == {}


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        (["--uncertain", "maybe"], "uncertain must be one of"),
        (["--size", "0"], "size is 0"),
        (["--label-names", "none.toml"], "none.toml cannot be read"),
        (["--labels", "none.csv"], "none.csv: No such file"),
        (["--site-column", "sites"], "no column 'sites' for the site; did you mean 'site'?"),
        (["--image-column", "file"], "no column 'file'"),
    ],
)
def test_wrong_options_give_no_traceback(folder: Path, options: list[str], hint: str) -> None:
    result = run(*options)
    assert result.exit_code == 1
    assert hint in " ".join(result.output.split())
    assert isinstance(result.exception, SystemExit)


def test_importing_the_command_does_not_import_torch() -> None:
    code = "import sys, fedquilt.cli.data; print('torch' in sys.modules, 'PIL' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
