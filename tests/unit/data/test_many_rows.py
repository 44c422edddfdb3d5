"""Allocations of many clients: what they take, and files whose header and rows differ."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation, Holding


def test_equal_rows_take_the_memory_of_one() -> None:
    known = torch.tensor([[True, False]] * 1000)
    holding = Holding("north", torch.arange(1000), known)
    assert torch.equal(holding.known, known)
    assert holding.known.untyped_storage().nbytes() == 2
    other = torch.tensor([[True, False]] * 999 + [[True, True]])
    assert Holding("north", torch.arange(1000), other).known is other
    rows = torch.arange(1000) < 500
    kept = Holding("north", torch.arange(1000), known, rows).for_training()
    assert kept.known.untyped_storage().nbytes() == 2


@pytest.mark.parametrize("sizes", [[1, 1], [2, 2], [4, -1]])
def test_a_file_whose_rows_are_not_those_of_its_header_is_refused(
    sizes: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "a.npz"
    holdings = (
        Holding("north", torch.tensor([4, 1]), torch.tensor([[True, False], [True, True]])),
        Holding("south", torch.tensor([0]), torch.tensor([[False, True]])),
    )
    Allocation(holdings, ("edema", "mass")).save(path)
    with np.load(path, allow_pickle=False) as file:
        content = dict(file)
    header = json.loads(str(content["header"])) | {"sizes": sizes}
    np.savez(path, **(content | {"header": np.array(json.dumps(header))}))
    with pytest.raises(UserError, match="is not a complete allocation file"):
        Allocation.load(path)
