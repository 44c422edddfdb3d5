"""The validation part of a simulation: rows marked val, drawn rows, and runs of before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.folder_files import make_folder
from support.tiny_runs import tiny_settings

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation, allocate
from fedquilt.recipes.recipe import Recipe, recipe_from
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.simulation import Simulation, simulate

# Of tiny_settings("fedavg-pl"), before there was a validation part.
RECIPE_HASH = "1ef4b66c31287a27a24d4f4329aa2069eb1b3ff37f346ee7470d6070c16d2a6d"
PARTITION_HASH = "93dceb1007ba93569a32ba663255ae22f5d5ea2abe94976b7b141e66b7c5e361"

MARKED = "image,split,site,A\n" + "".join(
    f"{row}.png,{('train', 'train', 'val', 'test')[row % 4]},{'MN'[row % 2]},{row // 2 % 2}\n"
    for row in range(40)
)


def marked_recipe(root: Path, **changes: Any) -> Recipe:
    if not (root / "images").exists():
        make_folder(root, MARKED)
    data = {"name": "folder", "folder": str(root / "images"), "labels": str(root / "labels.csv")}
    return recipe_from(
        {
            "data": data
            | {"split_column": "split", "site_column": "site", "size": 8, "channels": 1},
            "partition": {"name": "natural", "by": "site"},
            "annotation": {"name": "recorded"},
            "method": {"name": "fedavg-pl"},
            "rounds": 1,
        }
        | changes
    )


def trained_on(simulation: Simulation) -> set[str]:
    ids = simulation.splits.train.ids
    return {ids[row] for data in simulation.clients.values() for row in data.indices.tolist()}


def validated_on(simulation: Simulation) -> set[str]:
    ids = simulation.splits.train.ids
    return {ids[row] for data in simulation.validation.values() for row in data.indices.tolist()}


@pytest.mark.parametrize("validation", [{}, {"share": 0.3}])
def test_rows_marked_val_are_not_trained_on(tmp_path: Path, validation: dict[str, float]):
    simulation = simulate(marked_recipe(tmp_path, validation=validation), tmp_path / "cache")
    assert validated_on(simulation) == {f"{row}.png" for row in range(40) if row % 4 == 2}
    assert trained_on(simulation) == {f"{row}.png" for row in range(40) if row % 4 < 2}


def test_no_recipe_of_before_changes():
    settings = tiny_settings("fedavg-pl")
    recipe = recipe_from(settings)
    assert "validation" not in recipe.to_dict()
    assert recipe.hash == RECIPE_HASH
    simulation = simulate(recipe, Path("unused"))
    assert simulation.validation == {}
    plain = allocate(simulation.splits.train, recipe.partition, recipe.annotation, recipe.seed)
    assert (
        simulation.allocation.hash
        == plain.hash
        == "93dceb1007ba93569a32ba663255ae22f5d5ea2abe94976b7b141e66b7c5e361"
    )


def test_run_of_before_goes_on_with_the_rows_it_began_with(tmp_path: Path):
    recipe = marked_recipe(tmp_path)
    folder = RunFolder(tmp_path / "run")
    before = simulate(recipe, tmp_path / "cache", use_marked=False)
    assert trained_on(before) == {f"{row}.png" for row in range(40) if row % 4 < 3}
    with folder.begin(recipe, resume=False):
        folder.keep(recipe, before.allocation)
    assert not folder.validates_on_marked(recipe)
    assert not Allocation.load(folder.partition).holdings[0].has_validation
    new = RunFolder(tmp_path / "new")
    assert new.validates_on_marked(recipe)
    with new.begin(recipe, resume=False):
        new.keep(recipe, simulate(recipe, tmp_path / "cache").allocation)
    assert new.validates_on_marked(recipe)


def test_resume_refuses_another_validation_part(tmp_path: Path):
    recipe = marked_recipe(tmp_path)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.keep(recipe, simulate(recipe, tmp_path / "cache").allocation)
    labels = tmp_path / "labels.csv"
    labels.write_text(labels.read_text().replace("2.png,val,M", "2.png,train,M"))
    with pytest.raises(UserError, match="the data have changed"):
        folder.keep(recipe, simulate(recipe, tmp_path / "cache").allocation)


def test_bounds_leave_the_same_images_out(tmp_path: Path):
    """Bounds see all labels, also for validation; they train on no image that is set aside."""
    changes = {"validation": {"share": 0.25}, "data": tiny_settings()["data"] | {"train": 120}}
    plain = simulate(recipe_from(tiny_settings("fedavg-pl", **changes)), tmp_path)
    assert len(validated_on(plain)) == pytest.approx(30, abs=3)
    assert not trained_on(plain) & validated_on(plain)
    for method in ("full-labels", "centralised"):
        bound = simulate(recipe_from(tiny_settings(method, **changes)), tmp_path)
        assert validated_on(bound) == validated_on(plain)
        assert trained_on(bound) == trained_on(plain)
        assert all(bool(data.known.all()) for data in bound.validation.values())
    hidden = torch.cat([~data.known for data in plain.validation.values()])
    assert hidden.any()
