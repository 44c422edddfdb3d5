"""The notebooks of the docs run from top to bottom, and hold the output of such a run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NAMES = ("own_data", "new_method", "comparing_methods")
each_notebook = pytest.mark.parametrize("name", NAMES)


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def printed(cell: dict[str, Any]) -> str:
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def test_these_are_the_notebooks():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NAMES)


@each_notebook
def test_notebook_was_executed_in_order(name: str):
    text = (FOLDER / f"{name}.ipynb").read_text(encoding="utf-8")
    cells = code_cells(json.loads(text))
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    kinds = {output["output_type"] for cell in cells for output in cell["outputs"]}
    assert kinds == {"stream"}  # no errors
    assert printed(cells[-1])
    assert not re.search(r"/(tmp|home|root|work)/", text)


@pytest.mark.notebooks
@each_notebook
def test_notebook_runs(name: str, tmp_path: Path):
    """The output has the words of the stored one; numbers may differ from machine to machine."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    stored = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", 4)
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=where).execute()
    for old, new in zip(code_cells(stored), code_cells(notebook)):
        missing = words(printed(old)) - words(printed(new)) - MAY_DIFFER
        assert not missing, printed(new)


MAY_DIFFER = {"present", "absent", "significantly", "ahead"}


def words(text: str) -> set[str]:
    """The words, without what hangs on a result: numbers and decisions."""
    return set(re.findall(r"[A-Za-z_]{4,}", text))
