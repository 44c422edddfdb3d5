"""What the host does for a client besides its steps does not grow with the network's tensors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.tiny_federation import make_federation, make_method
from support.torch_calls import TorchCalls
from torch import nn

from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.graph_step import GraphStep
from fedquilt.training.rounds import run_rounds, start_server

SITES = ((0,), (1,), (2,), (0, 1), (1, 2), (0, 2))


def _layers(count: int) -> nn.Module:
    blocks = [nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.BatchNorm2d(1)) for _ in range(count)]
    network = nn.Sequential(*blocks, nn.Flatten(), nn.Linear(64, 4))
    network.num_features = 4  # type: ignore[assignment]
    return network


def shallow(channels: int) -> nn.Module:
    return _layers(2)


def deep(channels: int) -> nn.Module:
    return _layers(12)


def _calls(method_name: str, backbone: object, sites: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the operations of a round after the first, without those of steps."""
    federation = make_federation(annotated=SITES[:sites], images_each=16)
    method = make_method(method_name)
    task = replace(federation.task, model=replace(federation.task.model, backbone=backbone))
    task = replace(task, model=method.model_spec(task.model))
    engine = CudaGraphEngine(task, federation.clients, device="cpu", slots=1)
    rounds = run_rounds(method, task, engine, start_server(method, task, engine))
    next(rounds)
    with monkeypatch.context() as patched:
        patched.setattr(GraphStep, "replay", lambda self: None)
        with TorchCalls() as calls:
            next(rounds)
    return sum(calls.count.values())


@pytest.mark.parametrize("name", ["fedavg-pl", "fedprox", "scaffold"])
def test_calls_for_a_client_do_not_grow_with_the_network(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    of_a_client = [
        (_calls(name, backbone, 6, monkeypatch) - _calls(name, backbone, 3, monkeypatch)) / 3
        for backbone in (shallow, deep)
    ]
    assert of_a_client[0] == of_a_client[1]
    print(of_a_client)
