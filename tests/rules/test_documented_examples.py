"""The examples of the pages run, and the output they show is what is printed."""

from __future__ import annotations

import re
import runpy
import shlex
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path

import pytest
from PIL import Image
from support.markdown_pages import PAGES, ROOT, blocks, code_spans, page_id
from support.model_folders import make_model_folder
from support.own_study import write_own_study
from support.tiny_federation import make_federation
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.core.tree import same_bits
from fedquilt.data.augmentation.views import Augmentation, Views
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.metrics.evaluation import Evaluation
from fedquilt.models.spec import ModelSpec
from fedquilt.recipes.catalogue import recipe_paths
from fedquilt.recipes.recipe import Recipe, read_recipe
from fedquilt.recipes.source_docs import read_class
from fedquilt.runs.export.deployable import to_export
from fedquilt.runs.export.onnx_file import export_onnx
from fedquilt.runs.predictions import predict_files
from fedquilt.training.method import Method


@pytest.fixture
def worked_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> type[Method]:
    """The method of CONTRIBUTING.md, imported from a file of its own."""
    (code,) = blocks("CONTRIBUTING.md", "python")
    (tmp_path / "label_weighted.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    return import_module("label_weighted").LabelWeighted  # type: ignore[no-any-return]


def _quick(method: Method) -> Method:
    return replace(method, training=replace(method.training, batch_size=8, lr=0.01))


def test_worked_example_of_contributing_does_what_it_says(worked_example: type[Method]):
    """Alike where all annotate as much, different where one client has three labels an image."""
    for annotated, is_same in ((((0,), (1,), (2,)), True), (((0, 1, 2), (1,), (2,)), False)):
        federation = make_federation(annotated=annotated, rounds=2)
        ours = federation.train(_quick(worked_example()))
        plain = federation.train(_quick(FedAvgPL()))
        assert same_bits(ours, plain) == is_same
    alike = federation.train(_quick(worked_example(power=0.0)))
    assert same_bits(alike, federation.train(_quick(FedAvgPL(weighting="uniform"))))


@pytest.mark.usefixtures("worked_example")
def test_inherited_settings_of_the_worked_example_are_listed():
    """``fedquilt list methods --verbose`` reads them from source, through fedquilt's own names."""
    names = [field.name for field in read_class("label_weighted:LabelWeighted").fields]
    assert names[0] == "training"
    assert "head_rows" in names
    assert names[-1] == "power"


def test_recipe_of_the_page_runs_from_python_as_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (recipe,), (program,) = (
        blocks("docs/guides/recipes.md", "toml"),
        blocks("docs/guides/recipes.md", "python"),
    )
    (tmp_path / "study.toml").write_text(recipe, encoding="utf-8")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("program.py")
    assert 0 <= float(capsys.readouterr().out) <= 1
    assert read_recipe(Path("runs/short/recipe.json")).rounds == 2


def test_program_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (recipe,), (program,) = blocks("docs/guides/recipes.md", "toml"), blocks("README.md", "python")
    (tmp_path / "study.toml").write_text(recipe, encoding="utf-8")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    Image.new("L", (16, 16)).save(tmp_path / "new.png")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("program.py")
    auc, prediction = capsys.readouterr().out.splitlines()
    assert 0 <= float(auc) <= 1
    assert "new.png" in prediction


def test_program_of_the_quickstart_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    *_, program = blocks("docs/quickstart.md", "python")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("program.py")
    assert 0 <= float(capsys.readouterr().out) <= 1


def test_program_of_the_export_page_gives_predicts_probabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (program,) = blocks("docs/guides/export.md", "python")
    models = make_model_folder(tmp_path / "run", ModelSpec())
    export_onnx(to_export(models, None), tmp_path / "study.onnx")
    (tmp_path / "images").mkdir()
    Image.linear_gradient("L").save(tmp_path / "images" / "003.png")
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runpy.run_path("program.py")
    printed = capsys.readouterr().out
    (batch,) = predict_files(models, [Path("images/003.png")])
    for row in batch.prediction.rows():
        shown = printed.partition(f"{row['class']!r}: np.float32(")[2].partition(")")[0]
        assert float(shown) == pytest.approx(row["probability"], abs=1e-6)


def _shown_commands() -> set[str]:
    """The lines of all pages that call fedquilt, without prompts, comments and continuations."""
    texts = (
        block for page in PAGES for kind in ("", "console") for block in blocks(page_id(page), kind)
    )
    lines = (line.strip() for text in texts for line in text.replace("\\\n", " ").splitlines())
    plain = (line.removeprefix("$ ").partition(" #")[0] for line in lines)
    return {line for line in plain if line.startswith("fedquilt ")}


@pytest.mark.parametrize("line", sorted(_shown_commands()))
def test_shown_command_has_such_verbs_and_options(line: str):
    _, *words = shlex.split(line)
    command = get_command(app)
    while isinstance(command, TyperGroup):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    options = {name for parameter in command.params for name in parameter.opts}
    options |= {name for parameter in command.params for name in parameter.secondary_opts}
    assert {word for word in words if word.startswith("--")} - options == set()


def test_every_field_of_a_recipe_is_on_the_page():
    spans = code_spans((ROOT / "docs" / "guides" / "recipes.md").read_text(encoding="utf-8"))
    for settings in (Recipe, ModelSpec, Views, Evaluation, Augmentation):
        names = {field.name for field in fields(settings)}
        assert {name for name in names if not {name, f"[{name}]"} & spans} == set()
    assert recipe_paths().keys() <= spans


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_own_study(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("study")
def test_label_table_of_the_page_is_that_of_the_study():
    (table,) = blocks("docs/own_data.md", "csv")
    assert Path("labels.csv").read_text(encoding="utf-8").startswith(table)


@pytest.mark.usefixtures("study")
@pytest.mark.parametrize(("number", "exit_code"), [(0, 0), (1, 1)])
def test_check_prints_what_the_page_shows(number: int, exit_code: int):
    command, *shown = blocks("docs/own_data.md", "console")[number].splitlines()
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "fedquilt"
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == exit_code
    printed = " ".join(result.stdout.split())
    for part in "\n".join(shown).split("...\n"):  # dots stand for what is left out
        assert " ".join(part.split()) in printed


@pytest.mark.usefixtures("study")
def test_translation_of_the_page_fits_renamed_columns():
    translation = blocks("docs/own_data.md", "toml")[0]
    Path("names.toml").write_text(translation, encoding="utf-8")
    renamed = (
        Path("labels.csv").read_text(encoding="utf-8").replace("zero,one,two", "Zero,one,deux")
    )
    Path("renamed.csv").write_text(renamed, encoding="utf-8")
    columns = ["--patient-column", "patient", "--site-column", "site", "--no-picture"]
    names = ["--label-names", "names.toml"]
    result = CliRunner().invoke(
        app, ["data", "check", "images", "--labels", "renamed.csv", *columns, *names]
    )
    assert result.exit_code == 0, result.stdout
    assert "two – 54/120 – 54/120" in " ".join(result.stdout.split())


@pytest.mark.usefixtures("study")
def test_run_command_of_the_page_is_understood():
    command = blocks("docs/own_data.md", "console")[2].split("Result per class")[0]
    arguments = shlex.split(command.removeprefix("$ fedquilt ").replace("\\\n", " "))
    result = CliRunner().invoke(app, [*arguments, "--rounds", "1"])
    assert result.exit_code == 0, result.output
    shown = blocks("docs/own_data.md", "console")[2].splitlines()
    cells = (re.split(r"\s{2,}", line.strip()) for line in shown)
    for row in (each for each in cells if each[0] in ("zero", "one", "two")):
        # Test positives and annotators do not hang on the training.
        assert " ".join(row[4:]) in " ".join(result.stdout.split())
