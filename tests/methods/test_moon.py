"""MOON: the contrast between models, on the numbers of its card."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.tiny_federation import make_federation, make_method
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.losses.contrastive import model_contrast
from fedquilt.methods import moon
from fedquilt.methods.moon import Moon
from fedquilt.models.network import read_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.training.client import Workspace, run_client

QUERY = tensor([[1.0, 0.0]], dtype=torch.float64)


def _at(cosine: float) -> Tensor:
    """A vector of length 3 at this cosine from the query."""
    return 3 * tensor([[cosine, math.sqrt(1 - cosine**2)]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("near", "far", "expected"),
    [
        (1.0, -1.0, 0.0181499),  # ln(1 + exp((-1 - 1) / 0.5)) = ln(1 + e^-4)
        (0.9, 0.5, 0.3711007),  # ln(1 + exp((0.5 - 0.9) / 0.5)) = ln(1 + e^-0.8)
        (0.3, 0.3, 0.6931472),  # equal models: ln 2
    ],
)
def test_contrast_of_the_card(near: float, far: float, expected: float) -> None:
    found = model_contrast(QUERY, _at(near), [_at(far)], temperature=0.5)
    assert found.item() == pytest.approx(expected, abs=6e-8)


def test_every_previous_model_adds_to_the_sum() -> None:
    # ln(1 + e^-0.8 + e^-0.8) = ln 1.8986579 = 0.6411472
    found = model_contrast(QUERY, _at(0.9), [_at(0.5), _at(0.5)], temperature=0.5)
    assert found.item() == pytest.approx(math.log(1 + 2 * math.exp(-0.8)))


def test_lengths_of_features_do_not_matter() -> None:
    plain = model_contrast(QUERY, _at(0.9), [_at(0.5)], temperature=0.5)
    longer = model_contrast(7 * QUERY, 0.1 * _at(0.9), [40 * _at(0.5)], temperature=0.5)
    assert longer.item() == pytest.approx(plain.item())


def test_nothing_to_be_far_from_costs_nothing() -> None:
    query = QUERY.clone().requires_grad_()
    loss = model_contrast(query, _at(0.2), [], temperature=0.5)
    loss.backward()
    assert loss.item() == 0.0
    assert query.grad is not None
    assert query.grad.tolist() == [[0.0, 0.0]]


def test_features_of_zero_give_finite_numbers() -> None:
    query = torch.zeros(2, 2, requires_grad=True)
    loss = model_contrast(query, torch.zeros(2, 2), [torch.zeros(2, 2)], temperature=0.5)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2))
    assert query.grad is not None
    assert bool(query.grad.isfinite().all())


def test_without_contrast_it_is_fedavg_pl_on_the_same_network_bit_for_bit() -> None:
    federation = make_federation().fitted(Moon())
    plain = federation.train(make_method("fedavg-pl"))
    assert "backbone.projection.2.weight" in plain["weights"]
    assert same_bits(federation.train(make_method("moon", mu=0.0)), plain)
    assert same_bits(federation.train(make_method("moon", buffer_size=0)), plain)
    assert not same_bits(federation.train(make_method("moon")), plain)


def test_the_first_round_has_no_contrast() -> None:
    federation = make_federation(rounds=1).fitted(Moon())
    assert same_bits(
        federation.train(make_method("moon", mu=10.0)), federation.train(make_method("fedavg-pl"))
    )


def test_a_client_keeps_its_newest_models_first_in_first_out() -> None:
    method = make_method("moon", buffer_size=2)
    federation = make_federation().fitted(method)
    task, data = federation.task, federation.clients["site-0"]
    workspace = Workspace.of(task, torch.device("cpu"))
    received = {"weights": read_weights(task.build_network())}
    kept, trained = {}, []
    for round_index in range(3):
        _, kept = run_client(method, task, workspace, data, received, kept, round_index)
        trained.append(read_weights(workspace.training))
    assert sorted(kept["method"]["previous"]) == ["0", "1"]
    assert same_bits(kept["method"]["previous"]["0"], trained[2])
    assert same_bits(kept["method"]["previous"]["1"], trained[1])


def test_the_contrast_of_equal_models_is_ln_2_at_the_first_step() -> None:
    """Previous and received model agree, so the softmax is even whatever the training model is."""
    method = make_method("moon", mu=1.0)
    one_step = replace(method, training=replace(method.training, steps=1))
    federation = make_federation().fitted(method)
    task, data = federation.task, federation.clients["site-0"]
    workspace = Workspace.of(task, torch.device("cpu"))
    weights = read_weights(task.build_network())
    state = method.init_client(data)
    losses = [
        run_client(one_step, task, workspace, data, {"weights": weights}, kept, 0)[0]
        for kept in ({"method": state}, {"method": state | {"previous": {"0": weights}}})
    ]
    plain, contrasted = (update["training_loss"].value for update in losses)
    assert (contrasted - plain).item() == pytest.approx(math.log(2), abs=1e-6)


def test_at_the_first_step_of_a_round_the_model_is_as_near_as_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It starts from the received weights, so its cosine with them is 1; a step later it is not."""
    cosines = []

    def recording(features: Tensor, near: Tensor, far: list[Tensor], temperature: float) -> Tensor:
        cosines.append(torch.cosine_similarity(features.detach(), near, dim=1).min().item())
        assert not near.requires_grad
        assert not far[0].requires_grad
        return model_contrast(features, near, far, temperature)

    monkeypatch.setattr(moon, "model_contrast", recording)
    method = make_method("moon")
    federation = make_federation().fitted(method)
    task, data = federation.task, federation.clients["site-0"]
    weights = read_weights(task.build_network())
    earlier = {name: 1.5 * leaf for name, leaf in weights.items()}
    kept = {"method": method.init_client(data) | {"previous": {"0": earlier}}}
    workspace = Workspace.of(task, torch.device("cpu"))
    run_client(method, task, workspace, data, {"weights": weights}, kept, 1)
    assert cosines[0] == pytest.approx(1.0, abs=1e-6)
    assert min(cosines[1:]) < 1 - 1e-5


def test_bfloat16_trains() -> None:
    method = make_method("moon")
    method = replace(method, training=replace(method.training, precision="bfloat16"))
    weights = make_federation(rounds=2).train(method)["weights"]
    assert all(bool(entry.isfinite().all()) for entry in weights.values())


def test_the_width_of_a_recipes_own_projection_is_kept() -> None:
    assert Moon().model_spec(ModelSpec()).projection == 256
    assert Moon().model_spec(ModelSpec(projection=32)).projection == 32
    assert Moon(projection=None).model_spec(ModelSpec()).projection is None


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"buffer_size": -1}])
def test_settings_without_a_meaning_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match="must be positive and"):
        Moon(**settings)  # type: ignore[arg-type]
