"""A part of the device on which a step cannot run is given up, and the run goes on."""

from __future__ import annotations

import logging
from contextlib import nullcontext

import pytest
import torch

from fedquilt.engines.cuda_graph.kernel_search import DeviceShare


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
