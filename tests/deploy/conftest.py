"""Tests with real processes over TLS. They need the ``deploy`` extra and take minutes."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from running_study import RunningStudy

collect_ignore_glob = [] if find_spec("nvflare") else ["test_*.py"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.deploy)


@pytest.fixture(scope="session")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudy]:
    """A server and three sites that keep running, for several short studies with FedAvg."""
    from digits_recipe import recipe_settings
    from running_study import RunningStudy

    with RunningStudy(tmp_path_factory.mktemp("study"), recipe_settings("fedavg")) as study:
        yield study
