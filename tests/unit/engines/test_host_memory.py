"""What the system tells of memory: this process's growth, and what is left to it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedquilt.engines import host_memory as memory


@pytest.mark.skipif(not memory.STATUS.exists(), reason="this system does not tell")
def test_growth_is_the_most_that_was_taken_meanwhile() -> None:
    before = [torch.ones(1 << 16, dtype=torch.uint8) for _ in range(1600)]  # 100 MB in small pieces
    del before  # which the process keeps
    with memory.growth() as grown:
        taken = torch.ones(50 << 20, dtype=torch.uint8)
        del taken
    assert grown.most is not None
    assert 45 << 20 < grown.most < 80 << 20


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = tmp_path / "meminfo"
    machine.write_text("MemTotal:  9000 kB\nMemAvailable:    4000 kB\nHugePages_Total: 0\n")
    monkeypatch.setattr(memory, "MACHINE", machine)
    monkeypatch.setattr(memory, "CONTAINER", tmp_path)
    assert memory.available() == 4000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert memory.available() == 4000 * 1024
    (tmp_path / "memory.max").write_text("5000\n")
    assert memory.available() == 4000
    monkeypatch.setattr(memory, "MACHINE", tmp_path / "absent")
    assert memory.available() is None
