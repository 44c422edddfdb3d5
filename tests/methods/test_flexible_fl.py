"""Flexible federated learning: the body is shared, the head stays at home."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.tiny_federation import Federation, make_federation, make_method
from support.tiny_runs import CLIENTS, make_run

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Weights, leaves, same_bits
from fedquilt.privacy.sent_parts import sent_parts
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server
from fedquilt.training.server_optimizer import ServerOptimizer


def _trained(federation: Federation, method: Method) -> tuple[State, dict[str, Weights]]:
    """The server's state, and every client's own model."""
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server, dict(engine.personal_weights(method, method.broadcast(server)))


def test_no_head_leaves_a_client() -> None:
    assert [part.name for part in sent_parts("flexible-fl")] == ["body", "training_loss"]
    assert not any("head" in name for part in sent_parts("flexible-fl") for name in part.tensors)


def test_bodies_agree_and_heads_are_private() -> None:
    federation = make_federation(annotated=((0, 1), (1, 2)))
    method = make_method("flexible-fl")
    server, models = _trained(federation, method)
    assert method.global_weights(server) is None
    one, two = models["site-0"], models["site-1"]
    assert torch.equal(one["backbone.conv1.weight"], two["backbone.conv1.weight"])
    first = server["first_head"]["head.weight"]
    for model, annotated, blank in ((one, [0, 1], 2), (two, [1, 2], 0)):
        assert torch.equal(model["head.weight"][blank], first[blank])
        assert not torch.equal(model["head.weight"][annotated], first[annotated])
    assert not torch.equal(one["head.weight"][1], two["head.weight"][1])  # both annotate class 1


def test_the_first_head_is_that_of_the_network_and_stays() -> None:
    federation = make_federation()
    server, _ = _trained(federation, make_method("flexible-fl"))
    network = federation.task.build_network()
    assert torch.equal(server["first_head"]["head.weight"], network.head.weight)
    assert not any(name.startswith("head.") for name in server["weights"])


def test_a_single_client_trains_as_with_fedavg_pl() -> None:
    """By SGD: Adam makes a full step of a gradient's last bit."""
    federation = make_federation(annotated=((0, 1, 2),))
    method, plain = (
        replace(each, training=replace(each.training, optimizer="sgd"))
        for each in (make_method("flexible-fl"), make_method("fedavg-pl"))
    )
    own = _trained(federation, method)[1]["site-0"]
    expected = federation.train(plain)["weights"]
    assert own.keys() == expected.keys()
    for name, value in leaves(expected):
        torch.testing.assert_close(own[name], value, rtol=1e-5, atol=1e-6, msg=name)


def test_with_server_momentum_only_the_body_has_a_velocity() -> None:
    federation = make_federation(rounds=2)
    server, _ = _trained(
        federation, make_method("flexible-fl", server_step=ServerOptimizer(momentum=0.5))
    )
    assert server["velocity"].keys() == server["weights"].keys()  # small-cnn has no buffers


def test_a_finished_run_has_a_model_per_client(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "flexible-fl")
    assert run.models.clients == CLIENTS
    images = torch.randint(0, 256, (3, *run.models.image_shape), dtype=torch.uint8)
    one, two = (run.models.probabilities(images, name) for name in CLIENTS[:2])
    assert one.shape == (3, 3)
    assert not torch.equal(one, two)


@pytest.mark.parametrize("backbone", ["small-cnn", "small-resnet"])
def test_after_the_shared_rounds_only_the_private_heads_go_on(backbone: str) -> None:
    shared, models = _trained(
        make_federation(rounds=2, backbone=backbone), make_method("flexible-fl")
    )
    method = make_method("flexible-fl", shared_rounds=2)
    later, further = _trained(make_federation(rounds=4, backbone=backbone), method)
    assert same_bits(later["weights"], shared["weights"])  # batch norm's statistics, too
    for name in models:
        assert not torch.equal(further[name]["head.weight"], models[name]["head.weight"])


def test_no_shared_round_at_all_is_refused() -> None:
    with pytest.raises(UserError, match="shared_rounds must be at least 1, found 0"):
        make_method("flexible-fl", shared_rounds=0)
