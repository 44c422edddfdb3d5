"""``fedquilt attack`` and ``fedquilt audit privacy``, and their tables in the report."""

from __future__ import annotations

import json
from pathlib import Path

from support.tiny_runs import make_run, write_recipe
from typer.testing import CliRunner

from fedquilt.cli.main import app


def call(*arguments: str):
    return CliRunner().invoke(app, [*arguments])


def test_a_recipe_is_attacked_and_the_report_says_so(tmp_path: Path):
    recipe = write_recipe(tmp_path / "r.json", "fedavg-pl", annotation={"name": "full"})
    out = tmp_path / "out"
    done = call(
        *("attack", str(recipe), "--attack", "scale", "--rule", "median"),
        *("--out", str(out), "--json"),
    )
    assert done.exit_code == 0, done.output
    cells = json.loads(done.stdout)["cells"]
    assert [(cell["attack"], cell["rule"]) for cell in cells] == [
        ("none", "none"),
        ("none", "median"),
        ("scale", "none"),
        ("scale", "median"),
    ]
    assert all(cell["error"] is None and 0 < cell["mean_auc"] < 1 for cell in cells)
    assert cells[2]["refused"] == 2  # a hundred times the median, in both rounds
    assert json.loads((out / "attack.json").read_text())["malicious"] == ["client-0"]
    page = (out / "scale-median" / "report.html").read_text(encoding="utf-8")
    assert "Attack &#39;scale&#39; by client-0" in page
    again = call("attack", str(recipe), "--attack", "scale", "--out", str(out))
    assert again.exit_code == 1
    assert "already holds an attack bench" in again.output


def test_an_unknown_attack_or_rule_is_named(tmp_path: Path):
    recipe = write_recipe(tmp_path / "r.json", "fedavg-pl")
    wrong = call("attack", str(recipe), "--attack", "sign")
    assert wrong.exit_code == 1
    assert "unknown attack 'sign'" in wrong.output
    assert "unknown rule 'crum'" in call("attack", str(recipe), "--rule", "crum").output


def test_the_privacy_of_a_run_is_audited(tmp_path: Path):
    run = make_run(tmp_path / "run", "fedmlp")
    done = call("audit", "privacy", str(run.path), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["findings"]
    by_name = {(each["audit"], each["part"]): each["value"] for each in found}
    assert by_name["differencing", "weights"] == 1.0  # the weight is the number of images
    assert by_name["differencing", "counts"] == 1.0  # prototypes come with exact counts
    assert 0 <= by_name["membership", "update"] <= 1
    assert 0.5 < by_name["membership", "prototypes"] <= 1
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "Privacy audit" in page


def test_only_a_run_with_checkpoints_can_be_audited(tmp_path: Path):
    done = call("audit", "privacy", str(tmp_path))
    assert done.exit_code == 1
    assert "holds no recipe.json" in done.output
