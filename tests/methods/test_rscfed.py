"""RSCFed: distance weights, groups and the teacher, on the numbers of its card."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from support.pixel_logits import make_batch, make_local, plain_federation, with_teacher
from support.tiny_federation import make_federation, make_method
from torch import nn, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather, Update
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import Weights, clone, leaves, same_bits
from fedquilt.methods.rscfed import RSCFed
from fedquilt.models.teacher import ema_update
from fedquilt.training import whole_models
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.rounds import start_server
from fedquilt.training.whole_models import combined, consensus, distance_weights, inner_products


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        (0.0, [0.25, 0.75]),
        (0.01, [0.249975, 0.750025]),
        (100.0, [0.080769, 0.919231]),  # exp(-2) : 3 exp(-2/3)
        (1e4, [0.0, 1.0]),
    ],
)
def test_distance_weights_of_the_card(scale: float, expected: list[float]) -> None:
    found = distance_weights(tensor([100.0, 300.0]), tensor([2.0, 2.0]), scale)
    assert found.tolist() == pytest.approx(expected, abs=6e-7)


def test_equal_distance_per_image_leaves_shares_by_images() -> None:
    found = distance_weights(tensor([100.0, 300.0]), tensor([2.0, 6.0]), 1e3)
    assert found.tolist() == pytest.approx([0.25, 0.75])


def test_exponents_below_all_numbers_still_give_weights() -> None:
    # exp(-1e6) and exp(-1e6 - 1) are both 0; their ratio is e.
    found = distance_weights(tensor([1.0, 1.0]), tensor([1e6, 1e6 + 1]), 1.0)
    assert found.tolist() == pytest.approx([math.e / (1 + math.e), 1 / (1 + math.e)], rel=1e-6)


def _mean_of_all(changes: list[Weights], images: torch.Tensor, scale: float) -> Weights:
    members = torch.arange(len(changes))
    return combined(changes, consensus(inner_products(changes), members, images, scale))


def test_a_group_gives_shares_to_its_members_only() -> None:
    changes = [{"a": tensor([float(number)])} for number in range(4)]
    found = consensus(inner_products(changes), tensor([2, 0]), tensor([1.0, 9.0, 3.0, 9.0]), 0.0)
    assert found.tolist() == [0.25, 0.0, 0.75, 0.0]  # by images alone, 1 : 3


def test_consensus_by_hand() -> None:
    # Plain mean: a = (2, 0), b = 3. Distances: |(2, 0)| + 3 = 5 for both, so with scale ln 2 / 5
    # times 100 images the factors are 1/2 and, for 50 images, 1/4: weights 50 : 12.5 = 4 : 1.
    changes = [
        {"a": tensor([4.0, 0.0]), "b": tensor([6.0])},
        {"a": tensor([0.0, 0.0]), "b": tensor([0.0])},
    ]
    found = _mean_of_all(changes, tensor([100.0, 50.0]), 100 * math.log(2) / 5)
    assert found["a"].tolist() == pytest.approx([3.2, 0.0])
    assert found["b"].tolist() == pytest.approx([4.8])


def test_identical_clients_are_left_as_they_are() -> None:
    change = {"a": torch.randn(3, generator=torch.Generator().manual_seed(0))}
    found = _mean_of_all([change] * 3, tensor([5.0, 6.0, 7.0]), 10.0)
    torch.testing.assert_close(found["a"].float(), change["a"])


@pytest.mark.parametrize("backbone", ["small-cnn", "small-resnet"])
def test_one_group_of_all_without_distances_is_fedavg_pl(backbone: str) -> None:
    """By SGD: Adam makes a full step of a gradient's last bit."""
    federation = plain_federation(backbone=backbone, rounds=2)
    settings = {"consistency": 0.0, "distance_scale": 0.0, "group_size": 3}

    def trained(name: str, **settings: object) -> Weights:
        method = make_method(name, **settings)
        by_sgd = replace(method, training=replace(method.training, optimizer="sgd"))
        weights: Weights = federation.train(by_sgd)["weights"]
        return weights

    partial = trained("fedavg-pl")
    for name, leaf in trained("rscfed", **settings).items():
        torch.testing.assert_close(leaf, partial[name], rtol=1e-4, atol=1e-5, msg=name)


def test_groups_have_distinct_members_and_are_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    groups: list[tuple[int, ...]] = []

    def record(
        products: torch.Tensor, members: torch.Tensor, images: torch.Tensor, scale: float
    ) -> torch.Tensor:
        sizes.append(len(members))
        groups.append(tuple(members.tolist()))
        return consensus(products, members, images, scale)

    monkeypatch.setattr(whole_models, "consensus", record)
    federation = make_federation(annotated=((0,), (1,), (2,), (0,)), rounds=2)
    federation.train(make_method("rscfed", group_size=3, group_count=4))
    assert sizes == [3] * 8
    assert all(len(set(group)) == 3 for group in groups)
    assert len({frozenset(group) for group in groups[:4]}) > 1
    federation.train(make_method("rscfed", group_size=9), cohort_size=2)
    assert sizes[8:] == [2] * 6  # no more than there are


def _drawn(order: Sequence[int], rounds: int) -> list[float]:
    """Which of the clients is drawn in each round, by groups of one: client i moves w by i."""
    method = RSCFed(group_size=1, group_count=1)
    draws = torch.Generator().manual_seed(0).get_state()
    server = {"weights": {"w": torch.zeros(1)}, "group_draws": draws}
    found = []
    for _ in range(rounds):
        parts = {i: _sent(float(i)) for i in order}
        accumulator = Accumulator(parts[0], len(parts))
        for i, update in parts.items():
            accumulator.add(f"site-{i}", update)
        new = method.update(server, accumulator.totals())
        found.append((new["weights"]["w"] - server["weights"]["w"]).item())
        server = new
    return found


def _sent(change: float) -> Update:
    return {"body": Gather({"w": tensor([change])}), "images": Gather(tensor(10.0))}


def test_draws_go_on_from_round_to_round_whoever_came_first() -> None:
    found = _drawn(range(8), rounds=6)
    assert len(set(found)) > 1
    assert _drawn(range(7, -1, -1), rounds=6) == found


def test_loss_by_hand() -> None:
    method = RSCFed(consistency=3.0)
    local = make_local(method, tensor([[True, False]]), tensor([[1, 0]]))
    local.state = with_teacher(local, shift=math.log(3))
    # Annotated: ln 2. Missing: 1/2 against the teacher's sigmoid(0 + ln 3) = 3/4 on view two.
    found = method.loss(local, make_batch(local, torch.zeros(1, 2), torch.zeros(1, 2))).item()
    assert found == pytest.approx(math.log(2) + 3 / 16, rel=1e-6)


def test_without_missing_labels_there_is_no_consistency() -> None:
    method = RSCFed()
    local = make_local(method, tensor([[True, True]]), tensor([[1, 1]]))
    local.state = with_teacher(local, shift=5.0)
    found = method.loss(local, make_batch(local, torch.zeros(1, 2), torch.zeros(1, 2))).item()
    assert found == pytest.approx(math.log(2))


def test_teacher_follows_weights_and_statistics() -> None:
    network = nn.BatchNorm1d(1)
    network.weight.data.fill_(2.0)
    network.running_mean.fill_(10.0)  # type: ignore[union-attr, operator]
    teacher = {"weight": tensor([0.0]), "running_mean": tensor([20.0])}
    found = ema_update(clone(teacher), network, 0.75)
    assert found["weight"].item() == 0.5  # 0.75 * 0 + 0.25 * 2
    assert found["running_mean"].item() == 17.5  # 0.75 * 20 + 0.25 * 10
    assert not found["weight"].requires_grad
    assert same_bits(ema_update(clone(teacher), network, 1.0), teacher)


def test_teacher_is_kept_between_rounds_and_never_reset() -> None:
    method = make_method("rscfed", teacher_decay=1.0)
    federation = make_federation()
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    first = method.broadcast(start_server(method, federation.task, federation.engine()))
    data = federation.clients["site-0"]
    _, kept = run_client(method, federation.task, workspace, data, first, {}, 0)
    assert same_bits(kept["method"]["teacher"], first["weights"])
    later = {"weights": {name: leaf + 1 for name, leaf in first["weights"].items()}}
    _, kept = run_client(method, federation.task, workspace, data, later, kept, 1)
    assert same_bits(kept["method"]["teacher"], first["weights"])


def test_every_client_is_seen_alone_and_that_is_declared() -> None:
    method = make_method("rscfed")
    task = make_federation(backbone="small-resnet").task
    server = start_server(method, task, make_federation(backbone="small-resnet").engine())
    parts = method.expected_update(method.broadcast(server), task)
    assert list(parts) == ["body", "head", "buffers", "images"]
    assert all(isinstance(part, Gather) for part in parts.values())
    assert "group_draws" not in dict(leaves(method.broadcast(server)))


def test_no_groups_are_refused() -> None:
    with pytest.raises(UserError, match="group_size and group_count of at least 1, found 0 and 3"):
        RSCFed(group_size=0)


@pytest.mark.parametrize("setting", [{"head_rows": "annotated"}, {"weighting": "uniform"}])
def test_weights_that_groups_cannot_have_are_refused_before_training(
    setting: dict[str, object],
) -> None:
    with pytest.raises(UserError, match="leave head_rows and weighting as they are"):
        make_federation().train(make_method("rscfed", **setting))
