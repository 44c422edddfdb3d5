"""Kernels are searched on a share of the device if it can be divided, else on all of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fedquilt.engines.cuda_graph import kernel_search
from fedquilt.engines.cuda_graph.kernel_search import share_of

CUDA = torch.device("cuda")


def test_a_cpu_or_a_single_part_has_no_share() -> None:
    assert share_of(torch.device("cpu"), 4) is None
    assert share_of(CUDA, 1) is None


@pytest.mark.parametrize(
    "error",
    [ImportError("no green_contexts"), AttributeError("no create"), RuntimeError("old driver")],
)
def test_without_shares_the_whole_device_is_used(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(device: torch.device, parts: int) -> None:
        raise error

    monkeypatch.setattr(kernel_search, "DeviceShare", refuse)
    with caplog.at_level("INFO"):
        assert share_of(CUDA, 4) is None
    assert str(error) in caplog.text


def test_new_and_old_contexts_give_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    new = SimpleNamespace(Stream=lambda: "its own")
    assert kernel_search._stream_in(new) == "its own"
    entered: list[str] = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: f"within {entered[-1]}")
    old = SimpleNamespace(
        set_context=lambda: entered.append("the context"), pop_context=entered.clear
    )
    assert kernel_search._stream_in(old) == "within the context"
    assert not entered


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_work_on_a_share_is_ordered_with_the_work_around_it() -> None:
    share = share_of(CUDA, 4)
    if share is None:
        pytest.skip("this torch or driver cannot divide a device")
    values = torch.full((1000, 1000), 2.0, device=CUDA)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(20):
            values.mul_(3)
            with share.in_use():
                values.add_(1)
            values.div_(3)
    torch.cuda.synchronize()
    expected = 2.0
    for _ in range(20):
        expected = (3 * expected + 1) / 3
    assert values.unique().tolist() == pytest.approx([expected])
