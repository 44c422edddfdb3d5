"""study.toml: read strictly, and hashed by what sites agree to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.remote_sites import make_study
from support.tiny_federation import make_federation, make_method

from fedquilt.core.errors import UserError
from fedquilt.deploy.study import AT_SITES, Study, read_study, study_from


def _settings(**changes: Any) -> dict[str, Any]:
    return make_study(make_method("fedavg")).to_dict() | changes


def test_a_study_is_restored_from_its_dictionary() -> None:
    study = make_study(make_method("fedmlp"))
    again = study_from(study.to_dict())
    assert again.to_dict() == study.to_dict()
    assert again.hash == study.hash


def test_its_task_equals_the_simulations() -> None:
    method = make_method("fedavg")
    assert make_study(method).task == make_federation().fitted(method).task


def test_rules_are_not_part_of_the_hash_but_training_is() -> None:
    study = make_study(make_method("fedavg"))
    assert study_from(_settings(rules={"quorum": 3})).hash == study.hash
    recipe = study.to_dict()["recipe"]
    assert study_from(_settings(recipe=recipe | {"rounds": 4})).hash != study.hash
    assert study_from(_settings(recipe=recipe | {"min_cell": 5})).hash != study.hash


def test_simulated_data_do_not_reach_a_study_unless_the_server_evaluates_on_them() -> None:
    simulated = {"name": "digits-mosaic", "classes": 3}
    recipe = make_study(make_method("fedavg")).to_dict()["recipe"] | {"data": simulated}
    assert study_from(_settings(recipe=recipe)).recipe.data.folder == AT_SITES
    evaluated = study_from(_settings(recipe=recipe, evaluate_on_server=True))
    assert evaluated.recipe.to_dict()["data"]["name"] == "digits-mosaic"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nmae": "x"}, "did you mean 'name'"),
        ({"name": "Study 1"}, "cannot name a study"),
        ({"classes": ["round", "square", "bright", "new"]}, "no site annotates new"),
        ({"rules": {"quorum": 4}}, "quorum is 4"),
        ({"rules": {"late_seconds": -1.0}}, "must be positive"),
        ({"server": {"host": "x", "bind": "everywhere"}}, "IPv4 address"),
        ({"server": {"host": "x"}}, "lacks bind"),
        ({"recipe": 3}, "study.recipe must be"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        study_from(_settings(**changes))


def test_bounds_are_for_simulations() -> None:
    with pytest.raises(UserError, match="no site may send"):
        make_study(make_method("centralised"))


def test_a_toml_file_may_name_a_recipe_file(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text('rounds = 2\n[method]\nname = "fedavg"\n')
    (tmp_path / "study.toml").write_text(
        'name = "two"\nclasses = ["a"]\nrecipe = "recipe.toml"\n'
        '[server]\nhost = "fl.example.org"\nbind = "10.0.0.5"\n'
        '[[sites]]\nname = "north"\norganisation = "North"\nannotates = ["a"]\n'
        '[[sites]]\nname = "south"\norganisation = "South"\nannotates = []\n'
    )
    study: Study = read_study(tmp_path / "study.toml")
    assert study.recipe.rounds == 2
    assert study.site_names == ("north", "south")
    assert study.recipe.data.classes == ("a",)
