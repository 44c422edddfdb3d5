"""A part of the device on which a step cannot run is given up, and the run goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from support.engine_agreement import with_sgd
from support.remote_sites import make_clients
from support.tiny_federation import make_method
from torch.nn import functional

from fedquilt.core.tree import same_bits
from fedquilt.engines.cuda_graph import engine as engine_module
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.engines.cuda_graph.kernel_search import DeviceShare, forget_failure
from fedquilt.training.rounds import run_rounds, start_server


class FakeStream:
    device = torch.device("cpu")

    def wait_stream(self, other: object) -> None:
        pass


@pytest.fixture
def share(monkeypatch: pytest.MonkeyPatch) -> DeviceShare:
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    found = DeviceShare.__new__(DeviceShare)
    found._stream, found._is_unfit = FakeStream(), False
    return found


def test_a_failed_launch_gives_the_share_up(
    share: DeviceShare, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), share.in_use():
        raise RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART")
    assert "on a part of it: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART" in caplog.text
    with pytest.raises(RuntimeError, match="again"), share.in_use():  # no longer on the share
        raise RuntimeError("again")


def test_other_errors_are_not_the_shares_fault(share: DeviceShare) -> None:
    for error in (torch.OutOfMemoryError("full"), ValueError("odd")):
        with pytest.raises(type(error)), share.in_use():
            raise error
    assert not share._is_unfit


def test_cudnn_reports_a_failed_launch_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def failing_once(*given: torch.Tensor) -> torch.Tensor:
        calls.append(len(given))
        if len(calls) == 1:
            raise RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART")
        return given[0]

    monkeypatch.setattr(functional, "batch_norm", failing_once)
    forget_failure(torch.device("cpu"))
    assert len(calls) == 2


@pytest.mark.parametrize(("name", "asks"), [("fedavg-pl", [2]), ("fedlgt", []), ("fedc-tran", [])])
def test_a_network_with_attention_gets_no_part_of_the_device(
    name: str, asks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[int] = []
    monkeypatch.setattr(engine_module, "share_of", lambda device, count: parts.append(count))
    federation = make_clients(with_sgd(make_method(name)), rounds=1)
    engine = CudaGraphEngine(
        federation.task, federation.clients, device="cpu", slots=2, channels_last=False
    )
    engine._search_share(2)
    assert parts == asks


class FailingShare(DeviceShare):
    """A part of the device on which every step fails after its first kernels."""

    def __init__(self) -> None:
        self._stream, self._is_unfit = FakeStream(), False  # type: ignore[assignment]


def test_a_run_goes_on_after_a_step_fails_on_a_part(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """On a CPU, with batch norm that fails while the part is in use, as cuDNN's did on a GPU."""
    method = with_sgd(make_method("fedavg-pl"))
    federation = make_clients(method, rounds=2)
    expected = federation.train(method)
    in_use: list[bool] = []

    @contextmanager
    def stream(_: object) -> Iterator[None]:
        in_use.append(True)
        try:
            yield
            raise RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED_CUDART")
        finally:
            in_use.append(False)

    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: FakeStream())
    monkeypatch.setattr(torch.cuda, "stream", stream)
    share = FailingShare()
    engine = CudaGraphEngine(
        federation.task, federation.clients, device="cpu", slots=2, channels_last=False, exact=True
    )
    monkeypatch.setattr(engine, "_search_share", lambda slots: share)
    server = start_server(method, federation.task, engine)
    with caplog.at_level(logging.WARNING):
        for round_ in run_rounds(method, federation.task, engine, server):
            server = round_.server
    assert in_use == [True, False]  # and never again
    assert caplog.text.count("kernels are searched on the whole device") == 1
    assert same_bits(server, expected)
