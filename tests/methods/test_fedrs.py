"""FedRS: damped logits, on the numbers of its card."""

from __future__ import annotations

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import make_federation, make_method
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import same_bits
from fedquilt.losses.class_prior import logit_scale
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.methods.fedrs import FedRS
from fedquilt.models.network import read_weights
from fedquilt.training.client import Workspace, run_client


def test_restricted_softmax_of_the_card() -> None:
    # Class 1 is absent: exp(2), exp(0.5 * 1), exp(0.5) = 7.389, 1.6487, 1.6487, sum 10.686.
    logits = tensor([2.0, 1.0, 0.5], dtype=torch.float64)
    scale = logit_scale("present", tensor([3, 0, 1]), tensor([4, 4, 4]), alpha=0.5)
    plain = torch.softmax(logits, 0).tolist()
    assert plain == pytest.approx([0.6285317, 0.2312239, 0.1402444], abs=6e-8)
    found = torch.softmax(logits * scale, 0).tolist()
    assert found == pytest.approx([0.6914385, 0.1542808, 0.1542808], abs=6e-8)


def test_scale_by_frequency_of_the_card() -> None:
    # 0.5 + 0.5 * 50 / 50, 0.5 + 0, 0.5 + 0.5 * 25 / 50
    scale = logit_scale("frequency", tensor([50, 0, 25]), tensor([100, 100, 100]), alpha=0.5)
    assert scale.tolist() == [1.0, 0.5, 0.75]


def test_a_client_without_positives_is_damped_everywhere() -> None:
    nothing = tensor([0, 0])
    assert logit_scale("frequency", nothing, nothing, alpha=0.25).tolist() == [0.25, 0.25]


def test_an_annotated_class_without_positives_is_present_or_missing() -> None:
    positives, annotated = tensor([2, 0, 0]), tensor([5, 5, 0])
    assert logit_scale("annotated", positives, annotated, alpha=0.1).tolist() == [
        1.0,
        1.0,
        pytest.approx(0.1),
    ]
    assert logit_scale("present", positives, annotated, alpha=0.0).tolist() == [1.0, 0.0, 0.0]


def test_the_update_of_a_missing_row_is_scaled_twice() -> None:
    # d loss / dz = r (sigmoid(r z) - y): with z = 2, y = 0, r = 0.5 it is 0.5 * sigmoid(1).
    logit = tensor([[2.0]], dtype=torch.float64, requires_grad=True)
    masked_bce(logit * 0.5, tensor([[0.0]], dtype=torch.float64), tensor([[True]])).backward()
    assert logit.grad is not None
    assert logit.grad.item() == pytest.approx(0.5 * 0.7310585786)


def test_without_damping_it_is_fedavg_bit_for_bit() -> None:
    federation = make_federation()
    fedavg = federation.train(make_method("fedavg"))
    assert same_bits(federation.train(make_method("fedrs", alpha=1.0)), fedavg)
    assert not same_bits(federation.train(make_method("fedrs")), fedavg)


def test_alpha_zero_leaves_rows_of_missing_classes_unchanged() -> None:
    federation = make_federation(annotated=((0, 1, 2),), rounds=1)
    method = make_method("fedrs", alpha=0.0, restriction="present")
    data = federation.clients["site-0"]
    data.labels[:, 1] = 0  # annotated everywhere, but without a positive
    initial = federation.task.build_network().head.weight
    trained = federation.train(method)["weights"]["head.weight"]
    assert torch.equal(trained[1], initial[1])
    assert not torch.equal(trained[0], initial[0])


def test_alpha_zero_leaves_rows_of_unannotated_classes_unchanged_by_default() -> None:
    federation = make_federation(annotated=((0, 2),), rounds=1)
    initial = federation.task.build_network().head
    for alpha, is_unchanged in ((0.0, True), (0.5, False)):
        trained = _after_a_round(federation, alpha)
        for entry in ("weight", "bias"):
            same = torch.equal(trained[f"head.{entry}"][1], getattr(initial, entry)[1])
            assert same is is_unchanged
        assert not torch.equal(trained["head.weight"][0], initial.weight[0])


def _after_a_round(federation, alpha: float):  # type: ignore[no-untyped-def]
    """Of the only client: the server would refuse a class that nobody annotates."""
    method = make_method("fedrs", alpha=alpha)
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    received = {"weights": read_weights(federation.task.build_network())}
    data = federation.clients["site-0"]
    run_client(method, federation.task, workspace, data, received, {}, 0)
    return read_weights(workspace.training)


def test_alpha_zero_costs_ln_2_for_every_missing_label() -> None:
    known = tensor([[False, False]])
    method = FedRS(alpha=0.0)
    logits = tensor([[3.0, -7.0]])
    local = client_of(method, holding(torch.zeros(1, 2), known), logits)
    loss = method.loss(local, batch_of(torch.zeros(1, 2), known))
    loss.backward()
    assert loss.item() == pytest.approx(0.6931472)
    assert local.model.logits[0].grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize("alpha", [-0.1, 1.5])
def test_alpha_outside_its_range_is_refused(alpha: float) -> None:
    with pytest.raises(UserError, match="alpha must be between 0 and 1"):
        FedRS(alpha=alpha)
