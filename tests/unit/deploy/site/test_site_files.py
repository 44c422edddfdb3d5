"""site.toml and a site's data: read strictly, and converted into the study's client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.remote_sites import make_study
from support.tiny_federation import make_method

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.data.sources.digits_mosaic.load import DigitsMosaic
from fedquilt.deploy.nvflare.demo_files import annotated_classes, write_sites
from fedquilt.deploy.site.data import as_client, load_site_data
from fedquilt.deploy.site.settings import read_site_settings
from fedquilt.deploy.study import study_from
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.simulation import simulate

RECIPE = {
    "data": {"name": "digits-mosaic", "classes": 3, "train": 24, "test": 4},
    "partition": {"name": "iid", "clients": 2},
    "annotation": {
        "name": "listed",
        "annotates": {"0": ["digit 2", "digit 0"], "1": ["digit 1"]},
    },
    "method": {"name": "fedavg"},
}


def test_a_sites_files_give_the_client_of_the_simulation(tmp_path: Path) -> None:
    simulation = simulate(recipe_from(RECIPE), tmp_path)
    written = write_sites(simulation, tmp_path / "sites", {"min_cell": 3})
    classes = simulation.task.classes
    study = study_from(
        {
            "name": "digits",
            "classes": list(classes),
            "images": {"size": 16, "channels": 1},
            "sites": [
                {"name": name, "organisation": "x", "annotates": annotated_classes(data, classes)}
                for name, data in simulation.clients.items()
            ],
            "server": {"host": "localhost", "bind": "127.0.0.1"},
            "recipe": RECIPE,
        }
    )
    for name, data in simulation.clients.items():
        settings = read_site_settings(written[name])
        assert settings.policy.min_cell == 3
        found = load_site_data(study, name, settings).training
        assert found.name == name
        assert found.secret == data.secret
        for one, two in ((found.labels, data.labels), (found.known, data.known)):
            assert same_bits(one, two)
        rows = torch.arange(len(data))
        assert same_bits(found.pixels(rows), data.pixels(rows))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[data]\nfolder = 'a'\n", "lacks labels"),
        ("[data]\nfolder = 'a'\nlabels = 'b'\nsize = 3\n", "no field 'size'"),
        ("[data]\nfolder = 'a'\nlabels = 'b'\n[policy]\nmin_cel = 3\n", "did you mean 'min_cell'"),
        ("[data\n", "not valid TOML"),
    ],
)
def test_wrong_settings_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_site_settings(path)


def test_a_declared_class_without_a_label_is_refused(tmp_path: Path) -> None:
    study = make_study(make_method("fedavg"))
    splits = DigitsMosaic(classes=2, train=4, test=1, digits_per_image=(1, 2)).load(tmp_path)
    blank = splits.train.select([0, 1])
    blank.known[:, 1] = False
    renamed = type(blank)(**{**vars(blank), "classes": ("round", "square")})
    with pytest.raises(UserError, match="site-0 annotates square, but no image here"):
        as_client(study, "site-0", replace(splits, train=renamed), b"")
