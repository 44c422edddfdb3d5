"""``fedquilt report``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from support.html_pages import Page
from support.report_folders import write_run_folder
from support.tiny_runs import CLASSES, make_run
from typer.testing import CliRunner

from fedquilt.cli.main import app


def report(*arguments: str):
    return CliRunner().invoke(app, ["report", *arguments])


def test_a_run_becomes_one_page_and_a_card(tmp_path: Path):
    run = make_run(tmp_path / "run", "fedavg-pl")
    done = report(str(run.path))
    assert done.exit_code == 0, done.output
    page = Page((run.path / "report.html").read_text(encoding="utf-8"))
    cells = [cell.strip() for cell in page.cells]
    assert set(CLASSES) <= set(cells)
    assert f"{100 * run.result['metrics']['macro_auc']:.1f} %" in page.text
    assert "30" in cells  # training images
    assert (run.path / "MODEL_CARD.md").read_text().startswith("# Model card: fedavg-pl on digits")


def test_out_and_card(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema", "mass"))
    (tmp_path / "card.toml").write_text('title = "Chest"')
    out = tmp_path / "made" / "page.html"
    done = report(str(folder), "--out", str(out), "--card", str(tmp_path / "card.toml"), "--json")
    assert done.exit_code == 0, done.output
    written = [str(out), str(out.with_name("MODEL_CARD.md"))]
    assert json.loads(done.stdout) == {"written": written}
    assert "<h1>Chest</h1>" in out.read_text()


def test_what_is_no_run_is_an_error(tmp_path: Path):
    done = report(str(tmp_path / "none"))
    assert done.exit_code == 1
    assert "there is no run folder" in done.output
    assert "recipe.json" not in done.output


def test_torch_is_not_imported(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema", "mass"))
    program = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from fedquilt.cli.main import app\n"
        f"assert CliRunner().invoke(app, ['report', {str(folder)!r}]).exit_code == 0\n"
        "slow = {'torch', 'timm', 'sklearn', 'matplotlib'} & sys.modules.keys()\n"
        "sys.exit(f'imported: {slow}' if slow else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
