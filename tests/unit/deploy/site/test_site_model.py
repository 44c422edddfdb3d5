"""The model on a site's disk: replaced atomically, checked for damage, of the right round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.remote_sites import CallingChannel, make_engine, make_sites, make_study
from support.tiny_federation import make_method

from fedquilt.core.tree import same_bits
from fedquilt.deploy.site.model import CARD, KeptModel, SiteModel
from fedquilt.deploy.site.states import SiteStates
from fedquilt.runs.object_store import DamagedObject
from fedquilt.training.rounds import run_rounds, start_server


def _model(number: float, rounds: int = 1) -> KeptModel:
    return KeptModel("hash", "site-0", "own", rounds, {"head.weight": torch.tensor([number])})


def test_a_newer_model_replaces_the_old_one(tmp_path: Path) -> None:
    assert SiteModel(tmp_path).read() is None
    for rounds in (1, 2, 3):
        SiteModel(tmp_path).keep(_model(rounds * 0.5, rounds))
    found = SiteModel(tmp_path).read()
    assert found is not None
    assert (found.study, found.site, found.kind, found.rounds) == ("hash", "site-0", "own", 3)
    assert same_bits(found.weights, {"head.weight": torch.tensor([1.5])})
    assert len(list((tmp_path / "model").iterdir())) == 1


def test_an_interrupted_write_leaves_the_old_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    SiteModel(tmp_path).keep(_model(1.0))

    def fail(*details: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("fedquilt.deploy.site.model.write_json", fail)
    with pytest.raises(OSError, match="no space"):
        SiteModel(tmp_path).keep(_model(2.0))
    found = SiteModel(tmp_path).read()
    assert found is not None
    assert found.weights["head.weight"].item() == 1.0


def test_states_and_model_share_a_folder(tmp_path: Path) -> None:
    states, model = SiteStates(tmp_path), SiteModel(tmp_path)
    states.keep(0, {"control": torch.tensor([7.0])})
    model.keep(_model(1.0))
    states.keep(1, {"control": torch.tensor([8.0])})
    assert states.before(1) == {"control": torch.tensor([7.0])}
    assert model.read() is not None


@pytest.mark.parametrize("damage", ["weights", "card", "kind", "gone"])
def test_damage_is_detected(damage: str, tmp_path: Path) -> None:
    SiteModel(tmp_path).keep(_model(1.0))
    card, (weights,) = tmp_path / CARD, (tmp_path / "model").iterdir()
    if damage == "weights":
        content = weights.read_bytes()
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    elif damage == "card":
        card.write_text(card.read_text()[:30])
    elif damage == "kind":
        card.write_text(json.dumps(json.loads(card.read_text()) | {"kind": "global"}))
    else:
        weights.unlink()
    with pytest.raises(DamagedObject):
        SiteModel(tmp_path).read()


def test_before_the_end_it_joins_the_sites_part_with_the_received_part(
    tmp_path: Path,
) -> None:
    method = make_method("flexible-fl")
    study = make_study(method)
    engine = make_engine(study, CallingChannel(make_sites(study, tmp_path)), tmp_path)
    server = start_server(method, study.task, engine)
    rounds = run_rounds(method, study.task, engine, server)
    first = next(rounds).server
    next(rounds)
    found = SiteModel(tmp_path / "site-0" / "states").read()
    kept = SiteStates(tmp_path / "site-0" / "states").before(2)
    assert found is not None
    assert (found.kind, found.rounds) == ("own", 1)  # the server had finished one round
    assert same_bits(found.weights, {**first["weights"], **kept["method"]["head"]})
