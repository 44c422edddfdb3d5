"""Kits of a small study; no server is started. The tests need the ``deploy`` extra."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fedquilt.deploy.kit import Kit

collect_ignore_glob = [] if find_spec("nvflare") else ["test_*.py"]


@pytest.fixture(scope="session")
def kits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from support.remote_sites import make_study
    from support.tiny_federation import make_method

    from fedquilt.deploy.nvflare.provision import provision

    folder = tmp_path_factory.mktemp("study") / "kits"
    provision(make_study(make_method("fedavg")), folder)
    return folder


@pytest.fixture
def copy_of(kits: Path, tmp_path: Path) -> Callable[[str], Kit]:
    """Return a function that copies a participant's kit."""
    from fedquilt.deploy.kit import Kit

    return lambda name: Kit(Path(shutil.copytree(kits / name, tmp_path / name)))
