"""FedMLP's settings, server and whole rounds."""

from __future__ import annotations

import pytest
import torch
from support.tiny_federation import make_federation, make_method

from fedquilt.core.tree import same_bits
from fedquilt.losses.pseudo_labels import NO_TAG
from fedquilt.methods.fedmlp import FedMLP, Released
from fedquilt.training.rounds import run_rounds, start_server


def test_numbers_of_the_card() -> None:
    method = FedMLP()
    assert (method.warmup_rounds, method.warmup_views) == (50, 2)
    assert (method.negative_share, method.positive_share) == (0.005, 0.01)
    assert (method.low, method.high, method.rounding) == (0.3, 0.7, "floor")
    assert (method.fixed["feature_view"], method.difficulty_on) == ("plain", "missing")


def test_a_class_that_nobody_sends_keeps_its_prototypes_which_grow_older() -> None:
    method = make_method("fedmlp")
    federation = make_federation(rounds=4)
    engine, server = federation.engine(), federation.train(method)
    assert not server["prototype_age"].any()
    totals = engine.exchange(method, method.broadcast(server), 3, ["site-0"])  # has class 0 only
    new = method.update(server, totals)
    assert new["prototype_age"].tolist() == [[0, 0], [1, 1], [1, 1]]
    assert torch.equal(new["prototypes"][1:], server["prototypes"][1:])
    assert not torch.equal(new["prototypes"][0], server["prototypes"][0])


def test_prototypes_grow_old_and_are_then_not_used() -> None:
    """Partial participation: the last report of a class serves for a while."""
    federation = make_federation(rounds=6)
    method = make_method("fedmlp", prototype_age_limit=1)
    server = federation.train(method)
    assert bool(method.broadcast(server)["usable"].all())
    stale = {**server, "prototype_age": server["prototype_age"] + 2}
    assert not bool(method.broadcast(stale)["usable"].any())
    pointless = {**server, "prototypes": torch.zeros_like(server["prototypes"])}
    assert not bool(method.broadcast(pointless)["usable"].any())


def test_before_any_report_nothing_is_usable_and_every_degree_is_one() -> None:
    federation = make_federation()
    method = make_method("fedmlp", warmup_rounds=3)
    server = method.init_server(
        {name: torch.zeros(1) for name in federation.task.layout.names},
        federation.task,
        federation.engine().survey(method),
    )
    payload = method.broadcast(server)
    assert not bool(payload["usable"].any())
    assert payload["difficulty"].tolist() == [1.0, 1.0, 1.0]


def test_pseudo_labels_appear_only_where_nothing_was_annotated() -> None:
    federation = make_federation(rounds=4, images_each=40)
    engine = federation.engine()
    method = make_method("fedmlp", rounding="ceil", adaptive_threshold=False)
    server = start_server(method, federation.task, engine)
    for _ in run_rounds(method, federation.task, engine, server):
        pass
    for name, data in federation.clients.items():
        tags = method.pseudo_labels(engine._states.get(name)["method"])
        assert tags is not None
        assert bool((tags[data.known] == NO_TAG).all())
        assert bool((tags[~data.known] != NO_TAG).any())


@pytest.mark.parametrize(
    "switch",
    ["detection", "logit_adjustment", "consistency", "adaptive_threshold"],
)
def test_every_switch_of_the_ablation_matters(switch: str) -> None:
    federation = make_federation(rounds=3)
    easy = {"rounding": "ceil", "low": 0.48, "high": 0.52}  # so that few rounds decide something
    whole = federation.train(make_method("fedmlp", **easy))
    without = federation.train(make_method("fedmlp", **easy, **{switch: False}))
    assert not same_bits(whole["weights"], without["weights"])


def test_the_released_variant_is_the_authors_code() -> None:
    released = make_method("fedmlp", **FedMLP.variants["released"])
    assert isinstance(released, Released)
    assert not released.logit_adjustment
    assert not released.adaptive_threshold
    assert not released.consistency
    assert released.prototype_weights == "samples"
    assert released.fixed == {key: FedMLP.variants["released"][key] for key in FedMLP.fixed}
    federation = make_federation(rounds=3)
    trained = federation.train(released)
    assert not same_bits(trained["weights"], federation.train(make_method("fedmlp"))["weights"])
