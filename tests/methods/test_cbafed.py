"""CBAFed: thresholds, pseudo-labels, counts and residual connections of its card."""

from __future__ import annotations

import math

import pytest
import torch
from support.pixel_logits import make_batch, make_local, plain_federation
from support.tiny_federation import make_method
from torch import Tensor, tensor

from fedquilt.core.payload import Mean
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import Weights, same_bits
from fedquilt.losses.pseudo_labels import NO_TAG, class_thresholds, confident_tags, tagged_bce
from fedquilt.methods.cbafed import CBAFed


def _thresholds(share: list[float]) -> list[float]:
    found: list[float] = class_thresholds(tensor(share), 0.45, 0.55, 0.95).tolist()
    return found


def test_thresholds_of_the_card() -> None:
    assert _thresholds([1 / 8] * 8) == pytest.approx([0.575] * 8)  # no deviation
    # Unbiased deviation 0.334664.
    wanted = [0.95, 0.715336, 0.715336, 0.55, 0.55]
    assert _thresholds([1.0, 0.6, 0.6, 0.2, 0.2]) == pytest.approx(wanted, abs=6e-7)
    wanted = [0.75315, 0.55315, 0.55, 0.55, 0.55]
    assert _thresholds([0.5, 0.3, 0.1, 0.05, 0.05]) == pytest.approx(wanted, abs=6e-6)


def test_thresholds_fall_when_the_warm_up_ends() -> None:
    # Eight clients that annotate seven of eight classes each: in the warm-up 7 of 8 clients have a
    # class, 0.875 + 0.45 is above the limit; after it shares sum to 1: 0.125 + 0.45.
    assert _thresholds([7 / 8] * 8) == pytest.approx([0.95] * 8)
    assert _thresholds([1 / 8] * 8) == pytest.approx([0.575] * 8)


@pytest.mark.parametrize("share", [[0.0] * 4, [1.0, 0.0, 0.0, 0.0], [0.25] * 4, [1.0] * 4])
def test_no_prediction_is_confident_of_both(share: list[float]) -> None:
    assert min(_thresholds(share)) >= 0.55 - 1e-6


def test_a_single_class_has_no_deviation() -> None:
    assert _thresholds([0.3]) == pytest.approx([0.75])


def test_tags_by_class_in_open_entries_only() -> None:
    logits = torch.logit(tensor([[0.7, 0.7], [0.3, 0.3], [0.5, 0.99], [0.99, 0.01]]))
    is_open = tensor([[True, True]] * 3 + [[False, True]])
    tags = confident_tags(logits, tensor([0.6, 0.8]), is_open)
    assert tags.tolist() == [[1, NO_TAG], [0, NO_TAG], [NO_TAG, 1], [NO_TAG, 0]]
    assert tags.dtype == torch.int8


def test_loss_of_filled_in_labels_by_hand() -> None:
    # Class 0: tags 1, 0, 0 at logit 0; the positive weighs 3 / 1: (3 + 1 + 1) ln 2 / 3.
    # Class 1: a single 0 at logit 2, weight 1. Class 2: nothing.
    tags = tensor([[1, 0, -1], [0, -1, -1], [0, -1, -1]], dtype=torch.int8)
    logits = tensor([[0.0, 2.0, 9.0], [0.0, 9.0, 9.0], [0.0, 9.0, 9.0]], requires_grad=True)
    loss = tagged_bce(logits, tags)
    assert loss.item() == pytest.approx(5 * math.log(2) / 3 + math.log1p(math.exp(2.0)))
    loss.backward()
    assert logits.grad is not None
    assert bool((logits.grad[tags == NO_TAG] == 0).all())


KNOWN = tensor([[True, False]] * 2)
LABELS = tensor([[1, 0], [1, 0]])
THRESHOLDS = tensor([0.9, 0.7])


@pytest.mark.parametrize(("labelling", "missing"), [("round", 0.0), ("batch", math.log(1.25))])
def test_when_labels_are_filled_in(labelling: str, missing: float) -> None:
    """The received model is unsure everywhere; the batch's own predictions are 0.8 and 0.5."""
    method = CBAFed(warmup_rounds=1, labelling=labelling)  # type: ignore[arg-type]
    local = make_local(method, KNOWN, LABELS, round_index=1, thresholds=THRESHOLDS)
    local.state = method.begin(local)
    batch = make_batch(local, tensor([[0.0, math.log(4)], [0.0, 0.0]]))
    # 0.8 > 0.7 is a positive of weight 1 / 1: -ln 0.8.
    assert method.loss(local, batch).item() == pytest.approx(math.log(2) + missing, rel=1e-6)


def test_labels_filled_in_for_the_round_train() -> None:
    method = CBAFed(warmup_rounds=1)
    local = make_local(method, KNOWN, LABELS, round_index=1, thresholds=THRESHOLDS)
    local.received["weights"]["shift"] += 2.0  # the received model predicts 0.88 everywhere
    local.state = method.begin(local)
    assert local.state["tags"].tolist() == [[NO_TAG, 1], [NO_TAG, 1]]
    assert method.pseudo_labels(local.state) is local.state["tags"]
    loss = method.loss(local, make_batch(local, torch.zeros(2, 2)))
    assert loss.item() == pytest.approx(2 * math.log(2))


def _share(round_index: int, shift: float, known: Tensor) -> Mean:
    method = CBAFed(warmup_rounds=1)
    local = make_local(
        method, known, torch.zeros(known.shape), round_index=round_index, thresholds=THRESHOLDS
    )
    local.received["weights"]["shift"] += shift
    local.state = method.begin(local)
    update, _ = method.finish(local, local.received["weights"], 1)
    body, share = update["body"], update["class_share"]
    assert isinstance(share, Mean)
    assert isinstance(body, Mean)
    assert share.weight.tolist() == [body.weight] * 2  # type: ignore[union-attr]
    return Mean(share.value, body.weight)


def test_clients_count_by_images_in_the_warm_up_and_by_labels_after_it() -> None:
    warmup = _share(0, 2.0, KNOWN)
    assert warmup.weight == 2.0
    assert warmup.value.tolist() == [1.0, 0.0]  # type: ignore[union-attr]
    after = _share(1, 2.0, KNOWN)  # two annotated, two filled in
    assert after.weight == 4.0
    assert after.value.tolist() == [0.5, 0.5]  # type: ignore[union-attr]
    assert float(after.value.sum()) == 1.0  # type: ignore[union-attr, arg-type]
    unsure = _share(1, 0.0, KNOWN)
    assert (unsure.weight, unsure.value.tolist()) == (2.0, [1.0, 0.0])  # type: ignore[union-attr]


def test_a_client_without_any_label_still_has_a_weight() -> None:
    nothing = _share(1, 0.0, torch.zeros(2, 2, dtype=torch.bool))
    assert nothing.weight == 1.0
    assert nothing.value.tolist() == [0.0, 0.0]  # type: ignore[union-attr]


def _weights(value: float) -> Weights:
    return {"w": tensor([value], dtype=torch.float64)}


def test_residual_connections_of_both_stages() -> None:
    method = CBAFed(warmup_rounds=10)
    saved, found = _weights(-1.0), []
    for round_index in range(16):
        # Every round's mean is 10 times its number.
        weights, saved = method.mixed(_weights(10.0 * round_index), saved, round_index)
        found.append(weights["w"].item())
    wanted = [10.0 * round_index for round_index in range(16)]
    wanted[5] = 0.8 * 0 + 0.2 * 50  # with round 0
    wanted[15] = 0.5 * 100 + 0.5 * 150  # with round 10, which is only saved
    assert found == pytest.approx(wanted)


def test_mixing_starts_from_the_last_mixed_model() -> None:
    method = CBAFed(warmup_rounds=20)
    _, saved = method.mixed(_weights(0.0), _weights(-1.0), 0)
    _, saved = method.mixed(_weights(50.0), saved, 5)
    weights, _ = method.mixed(_weights(100.0), saved, 10)
    assert weights["w"].item() == pytest.approx(28.0)  # 0.8 * 10 + 0.2 * 100


def test_server_takes_thresholds_from_all_labels_together() -> None:
    method = CBAFed(warmup_rounds=1)
    server = {
        "weights": {"w": torch.zeros(1)},
        "saved": {"w": torch.zeros(1)},
        "rounds_done": tensor(0),
        "thresholds": torch.full((5,), 0.95),
    }
    body = Mean({"w": torch.zeros(1)}, 1.0)
    accumulator = Accumulator({"body": body, "class_share": Mean(torch.zeros(5), 0.0)}, 2)
    # Of 100 and 300 labels: (100 * 1 + 300 * 1/3) / 400 = 0.5, and so on to the card's shares.
    for name, share, count in (
        ("a", [1.0, 0.3, 0.1, 0.05, 0.05], 100.0),
        ("b", [1 / 3, 0.3, 0.1, 0.05, 0.05], 300.0),
    ):
        accumulator.add(name, {"body": body, "class_share": Mean(tensor(share), count)})
    new = method.update(server, accumulator.totals())
    wanted = [0.75315, 0.55315, 0.55, 0.55, 0.55]
    assert new["thresholds"].tolist() == pytest.approx(wanted, abs=6e-6)
    assert int(new["rounds_done"]) == 1


def test_without_confident_predictions_and_residuals_it_is_fedavg_pl_bit_for_bit() -> None:
    """One class per client, so the numbers of labels used and of images are equal."""
    federation = plain_federation()
    off = {"warmup_residual": 0.0, "residual": 0.0}
    never = federation.train(make_method("cbafed", threshold_range=(1.0, 1.0), **off))
    partial = federation.train(make_method("fedavg-pl"))
    assert same_bits(never["weights"], partial["weights"])
    often = federation.train(make_method("cbafed", threshold_range=(0.5, 0.5), **off))
    assert not same_bits(often["weights"], partial["weights"])


@pytest.mark.parametrize("variant", ["released", "supplement"])
def test_variants_are_other_methods(variant: str) -> None:
    federation = plain_federation(rounds=4)
    sure = {"threshold_range": (0.5, 0.5)}
    found = federation.train(make_method("cbafed", **sure, **CBAFed.variants[variant]))
    plain = federation.train(make_method("cbafed", **sure))
    assert not same_bits(found["weights"], plain["weights"])
