"""FedLSR: a sharpened mixture of two views, on numbers of its card."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import make_federation, make_method
from torch import tensor

from fedquilt.core.tree import same_bits
from fedquilt.losses.cross_entropy import masked_bce
from fedquilt.methods.fedlsr import FedLSR

LABELS = tensor([[1.0, 0.0]])
KNOWN = tensor([[True, False]])
PLAIN = FedLSR(positive_weight="none")


def _loss(method: FedLSR, *logits: torch.Tensor, round_index: int = 0) -> torch.Tensor:
    local = client_of(method, holding(LABELS, KNOWN), *logits, round_index=round_index)
    local.state = method.begin(local)
    share = method.sample_noise(1, 2, local.generator)
    return method.loss(local, replace(batch_of(LABELS, KNOWN, views=2), drawn=share))


def test_equal_views_are_sharpened_without_divergence() -> None:
    # p = 0.7 and 0.4 become 0.49 / 0.58 and 0.16 / 0.52; the missing label counts as 0.
    logits = torch.logit(tensor([[0.7, 0.4]]))
    expected = (-math.log(0.49 / 0.58) - math.log(0.36 / 0.52)) / 2
    assert _loss(PLAIN, logits, logits).item() == pytest.approx(expected, rel=1e-5)
    ramped_up = _loss(PLAIN, logits, logits, round_index=40)
    assert ramped_up.item() == pytest.approx(expected, rel=1e-5)


def test_different_views_add_the_divergence() -> None:
    # With contrast 1 the divergence of 0.7 and 0.4 is 0.0462008, of 0.5 and 0.5 it is 0.
    first, second = torch.logit(tensor([[0.7, 0.5]])), torch.logit(tensor([[0.4, 0.5]]))
    method = replace(PLAIN, contrast=1.0)
    without = _loss(method, first, second, round_index=0)
    whole = _loss(method, first, second, round_index=40)
    assert (whole - without).item() == pytest.approx(0.4 * 0.0462008 / 2, rel=1e-4)
    one_side = replace(method, both_sides=False)
    gap = _loss(one_side, first, second, round_index=40) - without
    assert gap.item() == pytest.approx(0.4 * 0.0207160 / 2, rel=1e-4)


def test_the_port_uses_probabilities_as_logits() -> None:
    # Sharpened 0.5 stays 0.5 and is used as a logit: softplus(-0.5) present, softplus(0.5) absent.
    logits = torch.zeros(1, 2)
    ported = replace(PLAIN, **FedLSR.variants["ported"])
    expected = (math.log1p(math.exp(-0.5)) + math.log1p(math.exp(0.5))) / 2
    assert _loss(ported, logits, logits).item() == pytest.approx(expected, rel=1e-5)
    sure = tensor([[60.0, -60.0]])  # right in both, and still far from 0
    floor = (math.log1p(math.exp(-1.0)) + math.log(2)) / 2  # 0.3133 and 0.6931
    assert _loss(ported, sure, sure).item() == pytest.approx(floor, rel=1e-5)
    assert _loss(PLAIN, sure, sure).item() == pytest.approx(0.0, abs=1e-6)


def test_the_strength_grows_over_the_first_rounds() -> None:
    assert [PLAIN.strength(t) for t in (0, 10, 40, 400)] == pytest.approx([0.0, 0.1, 0.4, 0.4])
    assert replace(PLAIN, ramp_rounds=0).strength(0) == 0.4


def test_without_sharpening_equal_views_give_the_loss_of_fedavg() -> None:
    logits = tensor([[0.3, -1.0]])
    found = _loss(replace(PLAIN, sharpening=1.0), logits, logits)
    expected = masked_bce(logits, LABELS, torch.ones(1, 2, dtype=torch.bool))
    assert found.item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_share_is_uniform_and_drawn_from_the_runs_generator_alone() -> None:
    before = torch.random.get_rng_state()
    draws = []
    for seed in (0, 0, 1):
        generator = torch.Generator().manual_seed(seed)
        draws.append([PLAIN.sample_noise(1, 2, generator).item() for _ in range(1000)])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert draws[0] == draws[1] != draws[2]
    counts = torch.histc(torch.tensor(draws[0]), bins=4, min=0, max=1)
    assert bool(((counts - 250).abs() < 70).all())  # Beta(1, 1): five deviations of 13.7


def test_every_setting_matters() -> None:
    federation = make_federation()
    default = federation.train(make_method("fedlsr"))
    for change in (
        {"self_distillation": 5.0},
        {"ramp_rounds": 1},
        {"sharpening": 1.0},
        {"double_sigmoid": True},
        {"unannotated": "skip"},
    ):
        assert not same_bits(federation.train(make_method("fedlsr", **change)), default), change
