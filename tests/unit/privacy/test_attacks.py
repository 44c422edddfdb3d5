"""Attacks: what a lying client trains on and sends."""

from __future__ import annotations

import pytest
import torch
from support.tiny_federation import make_federation
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Sum, Update
from fedquilt.privacy.attacks import (
    ATTACKS,
    Attackers,
    Backdoor,
    FlippedLabels,
    find_attack,
    triggered,
)
from fedquilt.training.client import LOSS_PART

HONEST = ([1.0, 4.0], [3.0, 4.0], [2.0, 4.0])


def sent(values: list[float], weight: float = 2.0) -> Update:
    loss = Mean(tensor(0.5), 3.0)
    return {"body": Mean({"w": tensor(values)}, weight), LOSS_PART: loss, "c": Sum(tensor(1.0))}


def lie(name: str, own: Update | None = None) -> Tensor:
    attack = find_attack(name)
    update = attack.update(sent([1.0, -2.0]) if own is None else own, [*map(sent, HONEST)])
    assert update[LOSS_PART] == sent([1.0])[LOSS_PART]
    assert torch.equal(update["c"].value, tensor(1.0))  # type: ignore[arg-type]
    value: Tensor = update["body"].value["w"]  # type: ignore[index, call-overload]
    return value


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("scale", [100.0, -200.0]),
        ("sign-flip", [-10.0, 20.0]),
        ("sign-flip-small", [-1.0, 2.0]),
        ("huge", [1e38, -2.0]),
        # Mean (2, 4), deviations (sqrt(2 / 3), 0).
        ("hidden", [2 - 1.5 * (2 / 3) ** 0.5, 4.0]),
        ("collude", [-2.0, -4.0]),
        ("backdoor", [3.0, -6.0]),
    ],
)
def test_what_is_sent(name: str, expected: list[float]) -> None:
    torch.testing.assert_close(lie(name), tensor(expected))


def test_a_mean_shift_is_no_farther_from_anyone_than_honest_updates_are() -> None:
    """The farthest two honest ones are 2 apart; the lie is against (2, 4), 2 from the farthest."""
    found = lie("mean-shift")
    gaps = (tensor(HONEST) - found).norm(dim=1)
    assert float(gaps.max()) == pytest.approx(2.0, abs=1e-5)
    direction = (found - tensor([2.0, 4.0])) / tensor([2.0, 4.0])
    assert float(direction[0]) == pytest.approx(float(direction[1]), abs=1e-5)
    assert float(direction[0]) < 0


def test_flipped_labels_stay_within_what_is_annotated() -> None:
    data = make_federation().clients["site-0"]
    flipped = FlippedLabels().data(data)
    assert torch.equal(flipped.labels[:, 0], 1 - data.labels[:, 0])
    assert torch.equal(flipped.labels[:, 1:], data.labels[:, 1:])
    heavy = find_attack("label-flip-heavy").update(sent([1.0, 1.0]), [])
    assert float(heavy["body"].weight) == 1e9  # type: ignore[union-attr]


def test_a_backdoor_stamps_every_other_image_and_labels_it() -> None:
    data = make_federation().clients["site-1"]
    attack = Backdoor()
    assert attack.target_of(data) == 1
    poisoned = attack.data(data)
    assert bool((poisoned.labels[::2, 1] == 1).all())
    assert torch.equal(poisoned.labels[1::2], data.labels[1::2])
    assert torch.equal(poisoned.images[::2], triggered(data.images[::2]))
    assert torch.equal(poisoned.images[1::2], data.images[1::2])
    assert bool((poisoned.images[0, :, -3:, -3:] == 255).all())


def test_lies_come_last_and_see_all_honest_updates() -> None:
    attackers = Attackers.first(find_attack("collude"), 2, ["d", "b", "a", "c"])
    assert attackers.names == ("a", "b")
    rounds = [(name, sent([float(place), 1.0]), {}) for place, name in enumerate("abcd")]
    found = list(attackers.tampered(rounds))
    assert [name for name, _, _ in found] == ["c", "d", "a", "b"]
    for _, update, _ in found[2:]:
        assert update["body"].value["w"].tolist() == [-2.5, -1.0]  # type: ignore[index, call-overload, union-attr]


def test_bad_requests_are_refused() -> None:
    with pytest.raises(UserError, match=r"unknown attack 'sign-flop'.*did you mean 'sign-flip'"):
        find_attack("sign-flop")
    for count in (0, 1, 3):
        with pytest.raises(UserError, match="clients cannot lie by 'collude'; expected 2 to 2"):
            Attackers.first(find_attack("collude"), count, ["a", "b", "c"])
    assert {find_attack(name).name for name in ATTACKS} == set(ATTACKS)
