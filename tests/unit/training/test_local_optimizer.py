"""The local optimiser against torch's own, and head rows that weight decay must not touch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn, tensor

from fedquilt.core.tree import clone, flatten, same_bits, unflatten
from fedquilt.training.local_optimizer import LocalOptimizer, gradients_of
from fedquilt.training.local_training import LocalTraining

HEAD = ("head.weight", "head.bias")
ANNOTATED = tensor([True, False, True])


def parameters(seed: int = 0) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"body": (4, 2), "head.weight": (3, 4), "head.bias": (3,)}
    return {
        name: nn.Parameter(torch.randn(shape, generator=generator))
        for name, shape in shapes.items()
    }


def gradients(step: int) -> dict[str, Tensor]:
    return {name: each.detach() for name, each in parameters(100 + step).items()}


def zeros() -> dict[str, Tensor]:
    return {name: torch.zeros_like(each) for name, each in parameters().items()}


def optimizer_of(
    weights: dict[str, nn.Parameter],
    training: LocalTraining,
    annotated: Tensor = ANNOTATED,
    *,
    capturable: bool = False,
) -> LocalOptimizer:
    return LocalOptimizer(weights, training, training.lr, HEAD, annotated, capturable=capturable)


def stepped(training: LocalTraining, steps: int = 5, **settings: Tensor) -> dict[str, nn.Parameter]:
    weights = parameters()
    optimizer = optimizer_of(weights, training, **settings)
    for step in range(steps):
        optimizer.step(gradients(step))
    return weights


def torchs(kind: type[torch.optim.Optimizer], **settings: object) -> dict[str, nn.Parameter]:
    weights = parameters()
    optimizer = kind(weights.values(), **settings)
    for step in range(5):
        for name, gradient in gradients(step).items():
            weights[name].grad = gradient
        optimizer.step()
    return weights


def test_coupled_decay_is_torchs_adam():
    ours = stepped(LocalTraining(lr=0.01, betas=(0.8, 0.9), weight_decay=0.1))
    assert same_bits(ours, torchs(torch.optim.Adam, lr=0.01, betas=(0.8, 0.9), weight_decay=0.1))


def test_decoupled_decay_is_torchs_adamw():
    ours = stepped(LocalTraining(lr=0.01, weight_decay=0.1, decay="decoupled"))
    assert same_bits(ours, torchs(torch.optim.AdamW, lr=0.01, weight_decay=0.1))


def test_no_decay_is_torchs_adam_whatever_the_kind_of_decay():
    """torch's AdamW decays by 0.01 by default; here decay is never implicit."""
    plain = torchs(torch.optim.Adam, lr=0.01)
    assert same_bits(stepped(LocalTraining(lr=0.01)), plain)
    assert same_bits(stepped(LocalTraining(lr=0.01, decay="decoupled")), plain)


def test_sgd_is_torchs_sgd():
    training = LocalTraining(optimizer="sgd", lr=0.1, momentum=0.9, weight_decay=0.1)
    assert same_bits(
        stepped(training), torchs(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1)
    )


DECAYS = [
    LocalTraining(lr=0.1, weight_decay=0.5, decay_unannotated_rows=False),
    LocalTraining(lr=0.1, weight_decay=0.5, decay="decoupled", decay_unannotated_rows=False),
    LocalTraining(lr=0.1, weight_decay=0.5, optimizer="sgd", decay_unannotated_rows=False),
    LocalTraining(
        lr=0.1, weight_decay=0.5, optimizer="sgd", momentum=0.9, decay_unannotated_rows=False
    ),
]


@pytest.mark.parametrize("training", DECAYS)
def test_exempt_rows_rest_while_all_else_decays(training):
    before, weights = parameters(), parameters()
    optimizer = optimizer_of(weights, training)
    for _ in range(3):
        optimizer.step(zeros())
    for name in HEAD:
        assert same_bits(weights[name][1], before[name][1])
        assert bool((weights[name][[0, 2]].abs() < before[name][[0, 2]].abs()).all())
    assert bool((weights["body"].abs() < before["body"].abs()).all())


@pytest.mark.parametrize("training", DECAYS)
def test_exempt_rows_still_follow_their_gradient(training):
    before, weights = parameters(), parameters()
    pull = zeros()
    pull["head.bias"][1] = 1.0
    optimizer_of(weights, training).step(pull)
    # The first step of Adam is lr times the sign, that of SGD lr times the gradient: both 0.1.
    moved = before["head.bias"][1] - weights["head.bias"][1]
    assert moved.item() == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize("training", DECAYS)
def test_without_an_exempt_row_both_ways_of_decay_agree(training):
    everything = torch.ones(3, dtype=torch.bool)
    by_row = stepped(training, annotated=everything)
    settings = {name: getattr(training, name) for name in ("lr", "weight_decay", "decay")}
    whole = stepped(
        LocalTraining(optimizer=training.optimizer, momentum=training.momentum, **settings)
    )
    for name, value in whole.items():
        assert torch.allclose(by_row[name], value, rtol=1e-5, atol=1e-6)


def test_a_coupled_step_with_an_exempt_row_by_hand():
    training = LocalTraining(
        optimizer="sgd", lr=0.5, weight_decay=0.1, decay_unannotated_rows=False
    )
    weights = {"head.bias": nn.Parameter(tensor([2.0, 2.0, -4.0]))}
    optimizer_of(weights, training).step({"head.bias": tensor([1.0, 1.0, 0.0])})
    # 2 - 0.5 * (1 + 0.1 * 2) = 1.4; exempt: 2 - 0.5 * 1 = 1.5; -4 - 0.5 * (0.1 * -4) = -3.8
    assert weights["head.bias"].tolist() == pytest.approx([1.4, 1.5, -3.8])


def test_all_rows_decay_by_default():
    """Adam turns the decay of a row without gradient into a full step: hence the setting."""
    weights, before = parameters(), parameters()
    optimizer_of(weights, LocalTraining(lr=0.1, weight_decay=0.5)).step(zeros())
    moved = (before["head.bias"] - weights["head.bias"]).abs()
    assert moved.tolist() == pytest.approx([0.1, 0.1, 0.1], rel=1e-4)


def test_clipping_scales_the_whole_gradient():
    training = LocalTraining(optimizer="sgd", lr=1.0, clip_norm=1.0)
    weights = {"body": nn.Parameter(tensor([0.0])), "head.bias": nn.Parameter(torch.zeros(3))}
    optimizer = optimizer_of(weights, training)
    optimizer.step({"body": tensor([3.0]), "head.bias": tensor([0.0, 4.0, 0.0])})
    # The norm is 5, so the gradient is divided by 5.
    assert weights["body"].tolist() == pytest.approx([-0.6], rel=1e-5)
    assert weights["head.bias"].tolist() == pytest.approx([0.0, -0.8, 0.0], rel=1e-5)


def test_clipping_leaves_small_gradients_alone():
    training = LocalTraining(optimizer="sgd", lr=1.0, clip_norm=10.0)
    weights = {"body": nn.Parameter(tensor([0.0]))}
    optimizer_of(weights, training).step({"body": tensor([3.0])})
    assert weights["body"].tolist() == [-3.0]


def test_decay_is_not_clipped():
    training = LocalTraining(
        optimizer="sgd", lr=1.0, clip_norm=1.0, weight_decay=0.5, decay_unannotated_rows=False
    )
    weights = {"body": nn.Parameter(tensor([8.0])), "head.bias": nn.Parameter(tensor([8.0] * 3))}
    optimizer_of(weights, training).step({"body": tensor([0.0]), "head.bias": torch.zeros(3)})
    assert weights["body"].tolist() == [4.0]  # 8 - 0.5 * 8
    assert weights["head.bias"].tolist() == [4.0, 8.0, 4.0]


KEPT = [
    LocalTraining(lr=0.01, weight_decay=0.1, decay_unannotated_rows=False),
    LocalTraining(lr=0.01, weight_decay=0.1, decay="decoupled"),
    LocalTraining(lr=0.01, optimizer="sgd", momentum=0.9),
    LocalTraining(lr=0.01, optimizer="sgd"),
]


@pytest.mark.parametrize("training", KEPT)
def test_a_kept_state_continues_bit_for_bit(training):
    through, weights = stepped(training, steps=6), parameters()
    first = optimizer_of(weights, training)
    for step in range(3):
        first.step(gradients(step))
    stored = unflatten(flatten(first.state()))  # as a checkpoint would hand it back
    second = optimizer_of(weights, training)
    second.load_state(stored)
    for step in range(3, 6):
        second.step(gradients(step))
    assert same_bits(weights, through)


@pytest.mark.parametrize("training", KEPT)
def test_a_restarted_optimizer_steps_as_a_new_one_does(training):
    weights = parameters()
    used = optimizer_of(weights, training, capturable=True)
    for step in range(3):
        used.step(gradients(step))
    stored = used.state()
    for saved in ({}, stored, {}):  # with nothing kept, with a memory, and without again
        expected = parameters()
        fresh = optimizer_of(expected, training, capturable=True)
        fresh.load_state(saved)
        fresh.step(gradients(7))
        for name, value in parameters().items():
            weights[name].data.copy_(value)
        used.restart(training.lr, ANNOTATED, saved)
        used.step(gradients(7))
        assert same_bits(weights, expected)


def test_a_state_is_a_copy():
    weights = parameters()
    optimizer = optimizer_of(weights, LocalTraining(lr=0.01))
    optimizer.step(gradients(0))
    state = optimizer.state()
    before = clone(state)
    optimizer.step(gradients(1))
    assert same_bits(state, before)
    fresh = optimizer_of(weights, LocalTraining(lr=0.01))
    fresh.load_state(state)
    fresh.step(gradients(2))
    assert same_bits(state, before)


def test_a_new_optimizer_has_no_state():
    assert flatten(optimizer_of(parameters(), LocalTraining()).state()) == {}


def test_gradients_of_what_the_loss_did_not_reach_are_zero():
    weights = {"used": nn.Parameter(tensor([2.0])), "unused": nn.Parameter(tensor([1.0, 1.0]))}
    weights["used"].square().sum().backward()
    assert same_bits(gradients_of(weights), {"used": tensor([4.0]), "unused": tensor([0.0, 0.0])})


def named(names: dict[str, str], weights: dict[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    return {names.get(name, name): parameter for name, parameter in weights.items()}


BODY_IS_BACKBONE = {"body": "backbone.body"}


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adam", "weight_decay": 0.1, "decay": "decoupled"},
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
        {"optimizer": "adam", "weight_decay": 0.1, "decay_unannotated_rows": False},
    ],
)
@pytest.mark.parametrize("capturable", [False, True])
def test_the_backbone_has_a_share_of_the_rate(settings, capturable):
    """Its weights move as if all had that rate, all others as without it."""

    def moved(**changes: float) -> dict[str, Tensor]:
        weights = named(BODY_IS_BACKBONE, parameters())
        training = LocalTraining(**{"lr": 0.01, **settings, **changes})
        optimizer = optimizer_of(weights, training, capturable=capturable)
        for step in range(3):
            optimizer.step(named(BODY_IS_BACKBONE, gradients(step)))
        return {name: each.detach() for name, each in weights.items()}

    found, slow, usual = moved(backbone_lr=0.1), moved(lr=0.001), moved()
    torch.testing.assert_close(found["backbone.body"], slow["backbone.body"])
    for name in HEAD:
        assert torch.equal(found[name], usual[name])
    assert not torch.equal(found["backbone.body"], usual["backbone.body"])


def test_a_restart_sets_both_rates():
    def after(restarted: bool) -> dict[str, nn.Parameter]:
        weights = named(BODY_IS_BACKBONE, parameters())
        training = LocalTraining(lr=0.5 if restarted else 0.01, backbone_lr=0.1)
        optimizer = optimizer_of(weights, training, capturable=True)
        if restarted:
            optimizer.step(named(BODY_IS_BACKBONE, gradients(9)))
            with torch.no_grad():
                for name, parameter in named(BODY_IS_BACKBONE, parameters()).items():
                    weights[name].copy_(parameter)
            optimizer.restart(0.01, ANNOTATED, {})
        optimizer.step(named(BODY_IS_BACKBONE, gradients(0)))
        return weights

    assert same_bits(after(True), after(False))
