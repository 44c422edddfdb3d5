"""``fedquilt list``."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.methods import METHODS
from fedquilt.recipes.catalogue import KINDS, entries


def list_(*arguments: str):
    return CliRunner().invoke(app, ["list", *arguments])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_listed(kind: str):
    result = list_(kind)
    assert result.exit_code == 0
    for entry in entries(kind):
        assert entry.name in result.stdout


def test_torch_is_not_imported():
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from fedquilt.cli.main import app\n"
        "for more in ([], ['--verbose']):\n"
        "    assert CliRunner().invoke(app, ['list', 'methods', *more]).exit_code == 0\n"
        "slow = {'torch', 'numpy', 'timm', 'sklearn', 'matplotlib'} & sys.modules.keys()\n"
        "sys.exit(f'imported: {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_json_holds_the_settings():
    methods = {entry["name"]: entry for entry in json.loads(list_("methods", "--json").stdout)}
    assert methods.keys() >= METHODS.keys()
    fields = {field["name"]: field for field in methods["fedmlp"]["fields"]}
    assert fields["warmup_rounds"]["default"] == "50"
    assert fields["training"]["fields"][0]["name"] == "epochs"
    assert "leaves_a_client" not in methods["fedmlp"]


def test_verbose_shows_settings_variants_and_what_leaves_a_client():
    text = list_("methods", "fedmlp", "--verbose").stdout
    assert "warmup_rounds" in text
    assert 'variant = "released"' in text
    assert "weight_decay" in text  # of training, listed below
    prototypes = next(line for line in text.splitlines() if line.startswith("  prototypes "))
    assert " ".join(prototypes.split()) == "prototypes Mean 5 x 2 x 64 5 x 2 yes"
    assert "scaffold" not in text


def test_verbose_shows_what_is_sent_once_and_what_of_it_is_gathered():
    text = list_("methods", "fedalc", "--verbose").stdout
    _, once, every_round = text.split("What leaves a client, ")
    assert once.startswith("once before the first round")
    assert "owned Gather 5 no" in " ".join(once.split())
    # An image: 16 bytes of its keyed hash, and whether each of 5 classes is present.
    assert "codes Gather 2 tensors, 21" in " ".join(once.split())
    assert every_round.startswith("every round")
    assert "codes" not in every_round


def test_verbose_json_holds_what_leaves_a_client():
    (entry,) = json.loads(list_("methods", "scaffold", "-v", "--json").stdout)
    parts = {part["name"]: part["kind"] for part in entry["leaves_a_client"]["parts"]}
    assert parts == {"body": "Mean", "head": "Mean", "control": "Sum", "training_loss": "Mean"}
    once = {part["name"]: part["kind"] for part in entry["leaves_a_client"]["once"]}
    assert once == {"annotators": "Sum"}


def test_verbose_shows_the_whole_recipe():
    assert '[method]\nname = "fedavg"' in list_("recipes", "digits-fedavg", "-v").stdout


def test_choices_are_readable():
    text = list_("partitions", "natural", "--verbose").stdout
    assert "site | patient" in text
    assert "Literal" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["metods"], "unknown kind 'metods'; did you mean 'methods'?"),
        (["methods", "fedml"], "there is no 'fedml' among the methods; did you mean 'fedmlp'?"),
    ],
)
def test_unknown_names_suggest_the_nearest(arguments: list[str], message: str):
    result = list_(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"error: {message}\n"


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, "fedquilt 0.1.0\n")


def test_notes_of_an_error_are_shown(monkeypatch: pytest.MonkeyPatch):
    from fedquilt.core.errors import UserError

    def fail(kind: str) -> None:
        error = UserError("bad")
        error.add_note("while client 'a' ran")
        raise error

    monkeypatch.setattr("fedquilt.cli.list.entries", fail)
    assert list_("methods").stderr == "error: bad\n  while client 'a' ran\n"


def test_unexpected_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch):
    def fail(kind: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("fedquilt.cli.list.entries", fail)
    assert isinstance(list_("methods").exception, ZeroDivisionError)
