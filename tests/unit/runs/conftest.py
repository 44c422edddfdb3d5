"""One uninterrupted run on digits, and its images, for all tests of this folder."""

from __future__ import annotations

import pytest
from support.whole_and_resumed import recipe

from fedquilt.data.source import Splits
from fedquilt.runs.experiment import run
from fedquilt.runs.run_folder import RunFolder


@pytest.fixture(scope="session")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Splits:
    return recipe().data.load(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def whole(splits: Splits, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A FedMLP run without interruption."""
    return run(recipe(), tmp_path_factory.mktemp("whole") / "run", splits=splits)
