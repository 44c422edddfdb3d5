"""Which training can be private, and why other training cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.tiny_federation import make_federation

from fedquilt.core.errors import UserError
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedavg_pl import FedAvgPL
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.methods.moon import Moon
from fedquilt.methods.quilt import Quilt
from fedquilt.models.spec import ModelSpec
from fedquilt.training.local_training import LocalTraining
from fedquilt.training.method import Method
from fedquilt.training.privacy_settings import Privacy
from fedquilt.training.private_training import check_private_training

PRIVATE = Privacy(epsilon=8.0, delta=1e-4, training=True)
APART = {"positive_weight": "none", "weighting": "uniform"}
REFUSED = [
    (FedMLP(), "fills in labels"),
    (Moon(), "nobody has shown"),
    (FedAvg(weighting="uniform"), "positive_weight"),
    (FedAvg(positive_weight="none"), "weighting"),
    (FedAvg(**APART, head_rows="positives"), "head_rows"),
    (FedAvg(**APART, training=LocalTraining(precision="bfloat16")), "precision"),
    (Quilt(weighting="uniform"), "logit_adjustment"),
]


@pytest.mark.parametrize(("method", "why"), REFUSED)
def test_what_noise_would_not_cover_is_refused(method: Method, why: str) -> None:
    task = replace(make_federation().task, privacy=PRIVATE)
    with pytest.raises(UserError, match=why):
        check_private_training(method, task)


def test_batch_norm_is_refused_with_a_way_out() -> None:
    task = replace(make_federation().task, model=ModelSpec(backbone="small-resnet"))
    with pytest.raises(UserError, match=r"bn1.*model.norm = 'group'"):
        check_private_training(FedAvg(**APART), task)
    check_private_training(
        FedAvg(**APART), replace(task, model=ModelSpec(backbone="small-resnet", norm="group"))
    )


def test_batch_norm_in_a_trained_block_is_refused() -> None:
    task = make_federation().task
    model = ModelSpec(backbone="small-resnet", train="last-block")
    with pytest.raises(UserError, match=r"blocks.2.bn1.*model.train = 'head'"):
        check_private_training(FedAvg(**APART), replace(task, model=model))


def test_a_subclass_of_a_method_that_is_supported_has_to_say_so_itself() -> None:
    class Coupled(FedAvgPL):
        pass

    task = replace(make_federation().task, privacy=PRIVATE)
    with pytest.raises(UserError, match="nobody has shown"):
        check_private_training(Coupled(**APART), task)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"training": True}, "need a budget"),
        ({"epsilon": 1.0}, "either"),
        ({"epsilon": 1.0, "training": True, "parts": ("a",)}, "either"),
        ({"epsilon": -1.0, "training": True}, "positive"),
        ({"epsilon": 1.0, "training": True, "delta": 1.5}, "between 0 and 1"),
        ({"epsilon": 1.0, "training": True, "images_per_patient": 2}, "unit"),
    ],
)
def test_settings_that_contradict_each_other(settings, why) -> None:
    with pytest.raises(UserError, match=why):
        Privacy(**settings)
