"""With one client, or with every label annotated, a method must be its simpler relative."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.tiny_federation import Federation, make_federation, make_method

from fedquilt.core.tree import Weights, leaves, same_bits
from fedquilt.training.method import Method
from fedquilt.training.rounds import run_rounds, start_server

FULL = ((0, 1, 2), (0, 1, 2), (0, 1, 2))
PARTIAL = ((0,), (1,), (2,))


def _model(federation: Federation, method: Method) -> Weights:
    """The global model, or the only client's own."""
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    weights = method.global_weights(server)
    if weights is None:
        weights = dict(engine.personal_weights(method, method.broadcast(server)))["site-0"]
    return weights


def _assert_close(one: Weights, two: Weights) -> None:
    for (name, first), (_, second) in zip(leaves(one), leaves(two)):
        torch.testing.assert_close(first, second, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("name", ["fedavg-pl", "full-labels"])
def test_with_full_labels_it_is_fedavg_bit_for_bit(name: str) -> None:
    federation = make_federation(annotated=FULL)
    assert same_bits(
        _model(federation, make_method(name)), _model(federation, make_method("fedavg"))
    )


def test_fedprox_without_its_pull_is_fedavg_pl_bit_for_bit() -> None:
    federation = make_federation(annotated=PARTIAL)
    fedprox = _model(federation, make_method("fedprox", mu=0.0))
    assert same_bits(fedprox, _model(federation, make_method("fedavg-pl")))
    assert not same_bits(_model(federation, make_method("fedprox", mu=1.0)), fedprox)


def test_fedmlp_without_missing_labels_and_prior_is_fedavg_bit_for_bit() -> None:
    """No missing class: nothing to tag, and the mean over no consistency cell is 0, not NaN."""
    federation = make_federation(annotated=FULL)
    fedmlp = make_method("fedmlp", warmup_rounds=0, logit_adjustment=False)
    fedavg = make_method("fedavg", positive_weight="none")
    assert same_bits(_model(federation, fedmlp), _model(federation, fedavg))


def test_fedmlp_with_everything_off_is_fedavg_pl() -> None:
    federation = make_federation(annotated=PARTIAL)
    switches = ("detection", "logit_adjustment", "consistency", "adaptive_threshold")
    fedmlp = make_method("fedmlp", warmup_rounds=0, **dict.fromkeys(switches, False))
    plain = make_method("fedavg-pl", positive_weight="none")
    assert same_bits(_model(federation, fedmlp), _model(federation, plain))


@pytest.mark.parametrize("name", ["fedavg-pl", "fedprox", "scaffold", "local-only", "full-labels"])
def test_one_client_with_full_labels(name: str) -> None:
    """Averaging over one client changes nothing, a control variate of its own corrects nothing.

    By SGD: Adam makes a full step of a gradient's last bit.
    """
    federation = make_federation(annotated=((0, 1, 2),))
    settings = {"mu": 0.0} if name == "fedprox" else {}
    one = _model(federation, _by_sgd(make_method(name, **settings)))
    _assert_close(one, _model(federation, _by_sgd(make_method("fedavg"))))


def _by_sgd(method: Method) -> Method:
    return replace(method, training=replace(method.training, optimizer="sgd"))


def test_centralised_is_fedavg_with_one_client_and_a_lasting_optimiser() -> None:
    federation = make_federation(annotated=((0, 1, 2),))
    fedavg = make_method("fedavg")
    lasting = replace(fedavg, training=replace(fedavg.training, keep_optimizer=True))
    centralised = _model(federation, make_method("centralised"))
    assert same_bits(centralised, _model(federation, lasting))
    assert not same_bits(centralised, _model(federation, fedavg))


def test_local_only_does_not_see_other_clients() -> None:
    """A client's own model is the same whoever else takes part."""
    method = make_method("local-only")
    alone = make_federation(annotated=((0, 1, 2),))
    few = make_federation(annotated=((0, 1, 2), (1,)))
    many = make_federation(annotated=((0, 1, 2), (0, 2), (2,)))
    assert same_bits(_model(alone, method), _model(few, method))
    assert same_bits(_model(alone, method), _model(many, method))
