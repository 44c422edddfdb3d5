"""Runs with a method, a network and a metric of the user's own, and their folders elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from support.tiny_runs import tiny_settings
from torch import Tensor, nn
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.core import own_code
from fedquilt.core.errors import UserError
from fedquilt.methods.fedavg import FedAvg
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run
from fedquilt.training.method import Local


@dataclass(frozen=True, kw_only=True)
class Patient(FedAvg):
    power: float = 1.0

    def client_weight(self, local: Local) -> float:
        return float(len(local.data)) ** self.power


class OneLayer(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.layer = nn.Conv2d(channels, 6, 3)
        self.num_features = 6

    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images).amax((2, 3))


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Another process, which was given nothing."""
    with monkeypatch.context() as patch:
        patch.setattr(own_code, "_given", {})
        yield


@pytest.fixture
def own_method(tmp_path: Path, elsewhere: None) -> Path:
    settings = tiny_settings() | {"method": Patient(power=0.5)}
    run(recipe_from(settings), tmp_path / "run")
    own_code._given.clear()
    return tmp_path / "run"


def test_a_run_of_an_own_method_resumes_to_the_same_bits(tmp_path: Path):
    settings = tiny_settings() | {"method": Patient(power=0.5)}
    run(recipe_from(settings | {"rounds": 1}), tmp_path / "run")
    run(recipe_from(settings), tmp_path / "run", resume=True)
    run(recipe_from(settings), tmp_path / "whole")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "whole")]
    assert files[0] == files[1]
    changed = recipe_from(settings | {"method": Patient(power=1.0)})
    with pytest.raises(UserError, match=r"differs in method.power"):
        run(changed, tmp_path / "run", resume=True)


def test_elsewhere_a_run_of_an_own_method_is_used_without_it(own_method: Path):
    found = read_run(own_method)
    image = torch.zeros(1, *found.models.image_shape, dtype=torch.uint8)
    assert len(found.predict(image).rows()) == 3
    test = found.source.load(own_method).test
    assert found.evaluate([test]).averages["macro_auc"] == pytest.approx(
        found.result["metrics"]["macro_auc"]
    )
    assert found.settings["method"]["name"].endswith(":Patient")
    assert not found.is_bound
    with pytest.raises(UserError, match=r"'Patient' of .* has not been given.*own=\[Patient\]"):
        _ = found.recipe
    assert read_run(own_method, own=[Patient]).recipe.method == Patient(power=0.5)


@pytest.mark.parametrize("verb", ["compare", "evaluate", "report"])
def test_elsewhere_verbs_that_only_read_work(verb: str, own_method: Path):
    result = CliRunner().invoke(app, [verb, str(own_method)])
    assert result.exit_code == 0, result.output


def test_elsewhere_resuming_says_what_is_missing(own_method: Path):
    result = CliRunner().invoke(app, ["run", "--out", str(own_method), "--resume"])
    assert result.exit_code == 1
    assert "Run that script again (with resume=True it goes on)" in " ".join(result.output.split())


def test_an_own_network_is_built_from_the_seed_and_named(tmp_path: Path, elsewhere: None):
    settings = tiny_settings("fedavg") | {"model": {"backbone": OneLayer}}
    run(recipe_from(settings), tmp_path / "run")
    run(recipe_from(settings), tmp_path / "again")
    files = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("run", "again")]
    assert files[0] == files[1]
    own_code._given.clear()
    image = torch.zeros(1, 1, 16, 16, dtype=torch.uint8)
    with pytest.raises(UserError, match=r"the backbone .*'OneLayer' of .* has not been given"):
        read_run(tmp_path / "run").predict(image)
    assert len(read_run(tmp_path / "run", own=[OneLayer]).predict(image).rows()) == 3


def no_module(channels: int) -> int:
    return channels


def no_width(channels: int) -> nn.Module:
    return nn.Flatten()


class Map(OneLayer):
    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images)


class Deep(OneLayer):
    def forward(self, images: Tensor) -> Tensor:
        return self.layer(images[:, :, :2])


@pytest.mark.parametrize(
    ("backbone", "message"),
    [
        (no_module, "returned int; a backbone's function takes the number of channels"),
        (no_width, "returned a Flatten without the whole number num_features"),
        (Map, r"become features of shape \(2, 6, 14, 14\), not \(2, 6\)"),
        (Deep, r"fails on two images of shape \(1, 16, 16\)"),
    ],
)
def test_a_network_that_is_no_backbone_is_refused_before_the_run(
    backbone: object, message: str, tmp_path: Path
):
    with pytest.raises(UserError, match=message):
        run(
            recipe_from(tiny_settings("fedavg") | {"model": {"backbone": backbone}}), tmp_path / "r"
        )
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("change", [{"weights": "timm"}, {"small_stem": True}])
def test_settings_of_timm_do_not_fit_an_own_network(change: dict[str, object], tmp_path: Path):
    settings = tiny_settings("fedavg") | {"model": {"backbone": OneLayer, **change}}
    with pytest.raises(UserError, match="is your own, but"):
        run(recipe_from(settings), tmp_path / "run")


def called_share(probabilities: Tensor, labels: Tensor, known: Tensor) -> Tensor:
    assert probabilities.shape == labels.shape == known.shape == (40, 3)
    return (probabilities >= 0.5).double().mean()


def test_an_own_metric_is_in_history_and_result(tmp_path: Path):
    settings = tiny_settings("fedavg")
    run(recipe_from(settings), tmp_path / "run", metrics={"called": called_share})
    found = read_run(tmp_path / "run")
    logits = found.models.logits(found.source.load(tmp_path).test.images, None)
    expected = float((logits >= 0).double().mean())
    assert found.result["metrics"]["called"] == pytest.approx(expected)
    assert found.history[-1]["metrics"]["called"] == pytest.approx(expected)
    result = CliRunner().invoke(app, ["compare", str(found.path), "--metric", "called"])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    ("name", "metric", "message"),
    [
        ("map", called_share, "'map' is a metric of fedquilt; give yours another name"),
        ("mine", lambda p, y, k: p, "metric 'mine' must return one number, found tensor"),
        ("mine", lambda p, y, k: None, "metric 'mine' must return one number, found None"),
    ],
)
def test_a_metric_that_is_none_is_refused(name: str, metric: object, message: str, tmp_path: Path):
    with pytest.raises(UserError, match=message):
        run(recipe_from(tiny_settings("fedavg")), tmp_path / "run", metrics={name: metric})


def test_an_undefined_own_metric_is_none(tmp_path: Path):
    metrics = {"mine": lambda p, y, k: float("nan")}
    run(recipe_from(tiny_settings("fedavg")), tmp_path / "run", metrics=metrics)
    assert read_run(tmp_path / "run").result["metrics"]["mine"] is None
