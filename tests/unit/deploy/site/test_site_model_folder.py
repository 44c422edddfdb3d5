"""``fedquilt site model``: a folder for predict, or an error that says why there is none."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.remote_sites import CallingChannel, make_clients, make_sites, make_study
from support.tiny_federation import SIZE, make_method
from typer.testing import CliRunner, Result

from fedquilt.cli.main import app
from fedquilt.core.atomic_files import write_json
from fedquilt.core.tree import Weights, same_bits
from fedquilt.core.version import VERSION
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.site.model import CARD
from fedquilt.deploy.site.states import study_folder
from fedquilt.deploy.study import Study
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.runs.finished_run import read_run
from fedquilt.runs.trained_models import load_weights
from fedquilt.training.method import Method
from fedquilt.training.rounds import run_rounds, start_server

SITE = "site-1"


class Hospital:
    """The kit, site.toml and work folder of one site whose study runs in this process."""

    def __init__(self, folder: Path, method: Method) -> None:
        self.folder, self.study = folder, make_study(method)
        self.kit, self.settings = folder / "kit", folder / "site.toml"
        self.settings.write_text('[data]\nfolder = "images"\nlabels = "labels.csv"\n')
        self.write_kit(self.study)

    @property
    def kept(self) -> Path:
        return study_folder(self.folder / "fedquilt-site", self.study, SITE)

    def write_kit(self, study: Study) -> None:
        kit = Kit(self.kit)
        kit.startup.mkdir(parents=True, exist_ok=True)
        write_json(kit.card, {"role": SITE, "fedquilt": VERSION})
        write_json(kit.study_file, study.to_dict())

    def run_study(self) -> ServerRun:
        sites = make_sites(self.study, self.folder / "elsewhere")
        run = ServerRun(self.study, self.folder / "run", CallingChannel(sites))
        assert run.run(resume=False)
        self.kept.parent.mkdir(parents=True)
        (self.folder / "elsewhere" / SITE / "states").rename(self.kept)
        return run

    def model(self, out: str = "model") -> Result:
        paths = [self.kit, self.settings, "--out", self.folder / out]
        return CliRunner().invoke(app, ["site", "model", *map(str, paths)])


def _check_refused(hospital: Hospital, *words: str) -> None:
    result = hospital.model("refused")
    assert result.exit_code == 1
    for word in words:
        assert word in result.stderr
    assert not (hospital.folder / "refused").exists()


def _own_in_one_process(method: Method) -> dict[str, Weights]:
    federation = make_clients(method)
    engine = federation.engine(StatesInMemory())
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return dict(engine.personal_weights(method, method.broadcast(server)))


@pytest.mark.parametrize("name", ["site-aware", "scene-gcn", "local-only", "flexible-fl"])
def test_a_sites_own_model_predicts_from_its_image_files(name: str, tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, make_method(name))
    hospital.run_study()
    result = hospital.model()
    assert result.exit_code == 0, result.stderr
    assert f"{SITE}'s own model after 3 of 3 rounds" in result.stderr
    run = read_run(tmp_path / "model")
    weights = load_weights(run.folder, run.models.card, SITE)
    assert same_bits(weights, _own_in_one_process(make_method(name))[SITE])

    image = tmp_path / "image.png"
    pixels = torch.randint(0, 256, (SIZE, SIZE), dtype=torch.uint8)
    Image.fromarray(np.asarray(pixels)).save(image)
    words = ["predict", str(tmp_path / "model"), str(image), "--client", SITE, "--json"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.stderr
    rows = json.loads(shown.stdout)["predictions"]
    by_tensor = run.predict(pixels[None, None], client=SITE).probabilities[0].tolist()
    assert [row["class"] for row in rows] == list(hospital.study.classes)
    assert [row["probability"] for row in rows] == pytest.approx(by_tensor)


def test_under_a_global_method_it_is_the_global_model(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, make_method("fedavg"))
    server_run = hospital.run_study()
    result = hospital.model()
    assert "the global model, the same for all sites, after 3 of 3 rounds" in result.stderr
    assert "--client" not in result.stderr
    there = read_run(server_run.folder.path)
    here = read_run(tmp_path / "model")
    both = [load_weights(run.folder, run.models.card, "global") for run in (there, here)]
    assert same_bits(*both)
    pixels = torch.zeros(1, 1, SIZE, SIZE, dtype=torch.uint8)
    assert torch.equal(there.predict(pixels).probabilities, here.predict(pixels).probabilities)


def test_a_part_of_the_global_model_is_not_called_the_global_model(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, make_method("fedaws"))
    hospital.run_study()
    assert f"the part of the global model that {SITE} receives" in hospital.model().stderr
    assert read_run(tmp_path / "model").models.clients == (SITE,)


def test_before_the_first_round_there_is_no_model(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, make_method("flexible-fl"))
    _check_refused(hospital, "has no model of tiny", "not finished a round")


def test_a_model_of_another_study_is_refused(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, make_method("flexible-fl"))
    hospital.run_study()
    other = make_study(make_method("flexible-fl"), rounds=4)
    hospital.write_kit(other)
    _check_refused(hospital, "has no model of tiny", "found models of other studies: states/tiny")
    hospital.kept.rename(hospital.kept.with_name(other.hash[:16]))
    _check_refused(hospital, "holds the model of another study or site")


def test_a_damaged_model_is_reported(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, make_method("flexible-fl"))
    hospital.run_study()
    (weights,) = (hospital.kept / "model").iterdir()
    weights.write_bytes(weights.read_bytes()[:-1])
    _check_refused(hospital, "is damaged", "deploy submit --resume")
    (hospital.kept / CARD).write_text("{")
    _check_refused(hospital, "is damaged", CARD)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, make_method("flexible-fl"))
    hospital.run_study()
    assert hospital.model().exit_code == 0
    again = hospital.model()
    assert again.exit_code == 1
    assert "already exists" in again.stderr


def test_a_kit_of_another_role_is_refused(tmp_path: Path) -> None:
    hospital = Hospital(tmp_path, make_method("flexible-fl"))
    write_json(Kit(hospital.kit).card, {"role": "server", "fedquilt": VERSION})
    _check_refused(hospital, "is the kit of server; expected a site's")
