"""SphereFed: squared error on the sphere, and a last round that calibrates the head."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import Federation, make_federation, make_method
from support.tiny_runs import make_run
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Sum
from fedquilt.core.tree import same_bits
from fedquilt.data.augmentation.views import normalise
from fedquilt.methods.spherefed import ROWS, SphereFed
from fedquilt.models.calibration import class_moments, ridge_rows
from fedquilt.models.heads.sphere import build_sphere_head, on_sphere
from fedquilt.training.client import LOSS_PART, Workspace, run_client
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

SCORES = tensor([[1.0, 0.0], [0.5, 0.5]])
LABELS = tensor([[1.0, 1.0], [0.0, 1.0]])
KNOWN = torch.ones(2, 2, dtype=torch.bool)


def _loss(method: SphereFed, known: torch.Tensor = KNOWN) -> float:
    local = client_of(method, holding(LABELS, known), 4 * (SCORES - 0.5))
    return method.loss(local, batch_of(LABELS, known)).item()


def test_squared_errors_by_hand() -> None:
    # 0, 1, 1/4, 1/4
    assert _loss(SphereFed()) == pytest.approx(0.375)
    # Two positives in the first image: targets 1 / sqrt 2; 0.0857864, 0.5, 1/4, 1/4
    assert _loss(SphereFed(target="scaled")) == pytest.approx(0.2714466, abs=1e-6)


def test_unannotated_labels_have_no_error_and_count_as_no_positive() -> None:
    known = tensor([[True, False], [True, True]])
    assert _loss(SphereFed(), known) == pytest.approx((0 + 0.25 + 0.25) / 3)
    assert _loss(SphereFed(target="scaled"), known) == pytest.approx((0 + 0.25 + 0.25) / 3)


def test_a_positive_weight_weighs_positives() -> None:
    # Class 0: 2 images, 1 positive: weight 2, but its error is 0. Class 1: 2 of 2, weight 1.
    known = tensor([[True, False], [True, False]])
    method = SphereFed(positive_weight="inverse-prevalence")
    local = client_of(method, holding(LABELS, known), torch.zeros(2, 2))  # all scores 1/2
    assert method.loss(local, batch_of(LABELS, known)).item() == pytest.approx((0.5 + 0.25) / 2)


def test_cross_entropy_of_scaled_scores_by_hand() -> None:
    # Logits 2 (s - 1/2) = 1, -1, 0, 0 with labels 1, 1, 0, 1.
    method = SphereFed(fit="cross-entropy", scale=2.0)
    expected = [math.log1p(math.exp(-1)), math.log1p(math.e), math.log(2), math.log(2)]
    assert _loss(method) == pytest.approx(sum(expected) / 4)
    blank = tensor([[True, False], [True, True]])
    assert _loss(method, blank) == pytest.approx((sum(expected) - expected[1]) / 3)


def test_how_far_two_positives_can_score_together() -> None:
    """On orthonormal rows the best common score of m positives is 1 / sqrt m: 4 of them, 1/2."""
    rows = build_sphere_head(16, 5, seed=0).weight
    for count in (1, 2, 4):
        scores = rows @ on_sphere(rows[:count].sum(0, keepdim=True))[0]
        assert scores.tolist() == pytest.approx(
            [count**-0.5] * count + [0.0] * (5 - count), abs=1e-6
        )


def _servers(federation: Federation, method: Method) -> list[State]:
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    rounds = run_rounds(method, federation.task, engine, server)
    return [server, *(each.server for each in rounds)]


def test_the_last_round_computes_the_head_and_trains_nothing() -> None:
    method = make_method("spherefed", ridge=0.5)
    federation = make_federation(rounds=3).fitted(method)
    servers = _servers(federation, method)
    before, after = servers[2]["weights"], servers[3]["weights"]
    assert torch.equal(before[ROWS], servers[0]["weights"][ROWS])
    assert same_bits({**before, ROWS: after[ROWS]}, after)
    assert not same_bits(before, servers[1]["weights"])

    workspace = Workspace.of(federation.task, torch.device("cpu"))
    clients = federation.clients.values()
    images = torch.cat([normalise(data.images, (0.5,), (0.5,)) for data in clients])
    features = on_sphere(workspace.forward(before, images).features)
    known = torch.cat([data.known for data in clients])
    positives = torch.cat([data.labels == 1 for data in clients])
    moments = class_moments(features, positives, known)
    expected = ridge_rows(*moments, 0.5, before[ROWS])
    assert torch.allclose(after[ROWS], expected, atol=1e-5)


def test_in_the_last_round_sums_are_sent_in_place_of_weights() -> None:
    method = make_method("spherefed")
    federation = make_federation(rounds=2).fitted(method)
    task = federation.task
    received = method.broadcast(_servers(federation, method)[1])
    data = federation.clients["site-0"]
    workspace = Workspace.of(task, torch.device("cpu"))
    update, _ = run_client(method, task, workspace, data, received, {}, 1)
    declared = method.expected_update(received, task)
    assert update.keys() - {LOSS_PART} == declared.keys() == {"squares", "products"}
    for name, part in declared.items():
        assert isinstance(part, Sum)
        assert part.value.shape == update[name].value.shape
        assert part.value.dtype == update[name].value.dtype


@pytest.mark.parametrize(("calibrate", "rounds"), [(False, 3), (True, 1)])
def test_when_the_head_is_left_as_it_was(calibrate: bool, rounds: int) -> None:
    method = make_method("spherefed", calibrate=calibrate)
    first, *_, last = _servers(make_federation(rounds=rounds).fitted(method), method)
    assert torch.equal(first["weights"][ROWS], last["weights"][ROWS])
    assert not same_bits(first["weights"], last["weights"])


def test_server_momentum_leaves_the_last_round_alone() -> None:
    method = make_method("spherefed")
    method = replace(method, server_step=replace(method.server_step, momentum=0.9))
    *_, before, after = _servers(make_federation(rounds=3).fitted(method), method)
    weights = before["weights"]
    assert same_bits({**weights, ROWS: after["weights"][ROWS]}, after["weights"])


@pytest.mark.parametrize("seed", [0, 5])
def test_a_run_that_is_read_back_predicts_with_its_calibrated_head(
    tmp_path: Path, seed: int
) -> None:
    run = make_run(tmp_path / "run", "spherefed", seed=seed)
    assert run.models.card["model"]["head"] == "sphere"
    images = torch.randint(0, 256, (5, *run.models.image_shape), dtype=torch.uint8)
    network = run.models.network(None)
    assert not torch.allclose(network.head.weight @ network.head.weight.T, torch.eye(3), atol=0.1)
    with torch.no_grad():
        expected = torch.sigmoid(network(normalise(images, (0.5,), (0.5,))).logits)
    assert torch.allclose(run.models.probabilities(images, None), expected, atol=1e-6)


@pytest.mark.parametrize("setting", ["ridge", "scale"])
def test_a_ridge_or_scale_of_zero_is_refused(setting: str) -> None:
    with pytest.raises(UserError, match=r"ridge and method\.scale must be positive"):
        SphereFed(**{setting: 0.0})
