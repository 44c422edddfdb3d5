"""Host memory: the peak growth of a block, and the available bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedquilt.engines import host_memory


@pytest.mark.skipif(not host_memory.STATUS.exists(), reason="not known on this system")
def test_growth_is_the_peak_during_the_block() -> None:
    before = [torch.ones(1 << 16, dtype=torch.uint8) for _ in range(1600)]  # 100 MB in small pieces
    del before  # the process keeps the freed memory
    with host_memory.peak_growth() as growth:
        taken = torch.ones(50 << 20, dtype=torch.uint8)
        del taken
    assert growth.bytes is not None
    assert 45 << 20 < growth.bytes < 80 << 20


def test_the_container_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = tmp_path / "meminfo"
    machine.write_text("MemTotal:  9000 kB\nMemAvailable:    4000 kB\nHugePages_Total: 0\n")
    monkeypatch.setattr(host_memory, "MACHINE", machine)
    monkeypatch.setattr(host_memory, "CONTAINER", tmp_path)
    assert host_memory.available_bytes() == 4000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert host_memory.available_bytes() == 4000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert host_memory.available_bytes() == 4000
    monkeypatch.setattr(host_memory, "MACHINE", tmp_path / "absent")
    assert host_memory.available_bytes() is None
