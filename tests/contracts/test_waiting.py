"""Opening a client's round reads no value from a tensor: the host would wait for the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.tiny_federation import METHOD_NAMES, make_federation, make_method
from support.torch_calls import TorchCalls

from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.scheduler import ClientRound
from fedquilt.engines.cuda_graph.stage import CapturedStage
from fedquilt.training.rounds import start_server

# Operations that copy a value, or a data-dependent size, from the GPU to the host.
SYNCHRONISING = ("local_scalar_dense", "nonzero", "equal.", "is_nonzero", "unique", "masked_select")
OPENING = ((ClientRound, "_open"), (CapturedStage, "__init__"), (CapturedStage, "begin"))


def _watched(hook: Callable[..., Any], calls: TorchCalls) -> Callable[..., Any]:
    def watched(*args: Any) -> Any:
        with calls:
            return hook(*args)

    return watched


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_round_is_opened_without_synchronising(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make_method(name)
    federation = make_federation(annotated=((0,), (1,), (2,), (0, 1))).fitted(method)
    engine = CudaGraphEngine(federation.task, federation.clients, device="cpu", slots=4)
    server, cohort = start_server(method, federation.task, engine), sorted(federation.clients)
    calls = TorchCalls()
    for round_index in range(4):
        if round_index == 2:  # after one-time work and warm-up rounds
            for owner, hook in OPENING:
                monkeypatch.setattr(owner, hook, _watched(getattr(owner, hook), calls))
        totals = engine.exchange(method, method.broadcast(server), round_index, cohort)
        server = method.update(server, totals)
    assert calls.count
    names = [name.removeprefix("aten.").lstrip("_") for name in calls.count]
    assert [name for name in names if name.startswith(SYNCHRONISING)] == []
