"""FedLSM's ranking of images by the entropy of their missing labels, and its pools."""

from __future__ import annotations

import pytest
import torch
from support.half_known_client import half_known_client
from support.pixel_logits import make_local
from torch import Tensor, tensor

from fedquilt.core.tree import Weights
from fedquilt.methods.fedlsm import FedLSM
from fedquilt.models.network import Output
from fedquilt.training.method import Local, Method


def _ranked(method: Method, logits: Tensor, known: Tensor) -> Local:
    """A client whose received model gives these logits, of images that are not augmented."""
    local = half_known_client(method, known, torch.zeros_like(logits))

    def predict(weights: Weights, view: str) -> Output:
        assert weights is local.received["weights"]
        assert view == "plain"
        return Output(logits, logits)

    local.predict = predict
    return local


COLUMN = tensor([0.0, 1, -2, 3, -4, 5, -6, 7, -8, 9])  # increasingly certain


def test_pools_by_the_entropy_of_missing_labels() -> None:
    method = FedLSM(uncertain_images=3, certain_images=4)
    known = tensor([[True, False]] * 10)
    logits = torch.stack((COLUMN.flip(0), COLUMN), 1)
    main, uncertain, certain = method.pools(_ranked(method, logits, known))
    rows = [pool.rows.tolist() for pool in (main, uncertain, certain)]
    assert sorted(rows[1]) == [0, 1, 2]
    assert sorted(rows[2]) == [6, 7, 8, 9]
    assert sorted(rows[0]) == [3, 4, 5, 6, 7, 8, 9]  # the certain ones train here too
    # 64 images a step, of which the three uncertain ones can make three mixtures at a time.
    assert [pool.batch_size for pool in (main, uncertain, certain)] == [61, 3, 3]
    assert uncertain.whole
    assert certain.whole
    assert (main.views, uncertain.views) == (("strong", "weak"), ("plain",))

    shifted = torch.where(known, logits * 7 - 1, logits)  # the annotated column does not matter
    again = method.pools(_ranked(method, shifted, known))
    assert [pool.rows.tolist() for pool in again] == rows


def test_the_public_codes_entropy_ranks_differently() -> None:
    # 0.9 and 0.3: in bits 0.469 and 0.881; -p ln p is 0.095 and 0.361; 0.6: 0.971 and 0.306.
    logits = torch.logit(tensor([[0.9], [0.3], [0.6]])).expand(3, 2)
    for entropy, most in (("binary", 2), ("one_sided", 1)):
        method = FedLSM(uncertain_images=1, certain_images=1, entropy=entropy)
        local = _ranked(method, logits, tensor([[True, False]] * 3))
        _, uncertain, certain = method.pools(local)
        assert uncertain.rows.tolist() == [most]
        assert certain.rows.tolist() == [0]


def test_images_of_one_class_are_ranked_over_all_classes() -> None:
    method = FedLSM(uncertain_images=1, certain_images=1, labels="single")
    logits = tensor([[0.0, 0.0], [9.0, -9.0], [1.0, -1.0]])  # log-odds of both shares
    _, uncertain, certain = method.pools(_ranked(method, logits, tensor([[True, False]] * 3)))
    assert (uncertain.rows.tolist(), certain.rows.tolist()) == ([0], [1])


def test_a_random_ranking_ignores_the_logits() -> None:
    method = FedLSM(uncertain_images=2, certain_images=2, entropy="random")
    known = torch.zeros(8, 2, dtype=torch.bool)
    local = make_local(method, known, torch.zeros(8, 2), class_weight=torch.ones(2))
    local.predict = None  # type: ignore[assignment]  # not asked for
    local.state = {**local.state, "teacher": {}}
    orders = set()
    for seed in range(5):
        local.generator.manual_seed(seed)
        _, uncertain, certain = method.pools(local)
        assert uncertain.rows is not None
        assert certain.rows is not None
        found = (*uncertain.rows.tolist(), *certain.rows.tolist())
        assert len(set(found)) == 4
        orders.add(found)
    assert len(orders) > 1


@pytest.mark.parametrize(("count", "sizes"), [(10, (8, 2, 8)), (4, (0, 0, 0)), (1, (0, 0, 0))])
def test_small_clients_have_small_pools(count: int, sizes: tuple[int, int, int]) -> None:
    """Of 10 images 2 are uncertain and 8 certain; of 4 none is uncertain, so none is mixed."""
    method = FedLSM()
    pools = method.pools(_ranked(method, COLUMN[:count, None].expand(-1, 2), _known(count)))
    if not sizes[1]:
        assert [(pool.rows, pool.batch_size, pool.views) for pool in pools] == [
            (None, 64, ("strong", "weak"))
        ]
    else:
        assert tuple(len(pool.rows) for pool in pools) == sizes
        assert [pool.batch_size for pool in pools] == [62, 2, 2]


def _known(count: int) -> Tensor:
    return tensor([[True, False]] * count)


@pytest.mark.parametrize("off", [{"mixing_strength": 0.0}, {"mixed_images": 0}])
def test_without_mixtures_all_images_train_equally(off: dict[str, float]) -> None:
    method = FedLSM(**off)
    (pool,) = method.pools(_ranked(method, COLUMN[:, None].expand(-1, 2), _known(10)))
    assert (pool.rows, pool.batch_size) == (None, 64)
