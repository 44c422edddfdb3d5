"""The recipe's ``min_cell`` reaches every message of a run; the docs name all parts it covers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.markdown_pages import ROOT, blocks, code_spans
from support.tiny_federation import METHOD_NAMES, make_method
from support.tiny_runs import make_run, tiny_settings

from fedquilt.core.errors import UserError
from fedquilt.deploy.site.settings import read_site_settings
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.checkpoint import Checkpoints

WEIGHTS = {"annotators", "body", "head", "buffers"}


def prototypes(folder: Path, min_cell: int) -> object:
    """Return the server's, after two rounds with clients of 10 images each."""
    make_run(folder, min_cell=min_cell)
    saved, _ = Checkpoints(folder / "checkpoints").restore()
    assert saved is not None
    return saved.server["prototypes"]


def test_a_run_under_a_floor_withholds_small_prototypes(tmp_path: Path) -> None:
    """Each client has 10 images, so one side of its class has 5 at most."""
    assert prototypes(tmp_path / "open", 0).any()  # type: ignore[attr-defined]
    assert not prototypes(tmp_path / "floored", 6).any()  # type: ignore[attr-defined]


def test_a_recipe_has_no_floor_by_default() -> None:
    assert recipe_from(tiny_settings()).min_cell == 0
    assert recipe_from(tiny_settings(min_cell=10)).to_dict()["min_cell"] == 10
    with pytest.raises(UserError, match="min_cell must be 0 or more, found -3"):
        recipe_from(tiny_settings(min_cell=-3))


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_the_page_names_every_part_beyond_the_weights(name: str) -> None:
    spans = code_spans((ROOT / "docs" / "guides" / "privacy.md").read_text(encoding="utf-8"))
    settings = {"labelled_weight": 0.5} if name == "fssl" else {}
    declared = set(make_method(name, **settings).provenance) - WEIGHTS - {"spare_rows"}
    assert declared <= spans


def test_the_policy_on_the_page_can_be_read(tmp_path: Path) -> None:
    policy, _ = blocks("docs/guides/privacy.md", "toml")
    path = tmp_path / "site.toml"
    path.write_text(policy + "[data]\nfolder = 'images'\nlabels = 'labels.csv'\n")
    read = read_site_settings(path).policy
    assert (read.min_cell, read.accepted_methods) == (20, ("fedavg-pl", "fedmlp"))
