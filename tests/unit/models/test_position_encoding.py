from __future__ import annotations

import math

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.models.heads.layers.position_encoding import LONGEST_SIDE, PositionEncoding


def test_sines_and_cosines_by_hand():
    # 8 channels: 4 for the row, 4 for the column; wavelengths 2 pi times 1 and 10000^(2/4) = 100.
    encoding = PositionEncoding(8)(torch.zeros(1, 8, 3, 4))
    assert encoding.shape == (8, 3, 4)
    row, column = 2, 3
    expected = [math.sin(2), math.cos(2), math.sin(0.02), math.cos(0.02)]
    expected += [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]
    assert encoding[:, row, column].tolist() == pytest.approx(expected, abs=1e-6)
    assert encoding[:, 0, 0].tolist() == [0, 1, 0, 1, 0, 1, 0, 1]


def test_every_position_has_its_own_encoding():
    positions = PositionEncoding(16)(torch.zeros(1, 16, 16, 16)).flatten(1).T
    distances = torch.cdist(positions, positions).fill_diagonal_(1.0)
    assert distances.min() > 0.1


def test_it_is_not_stored_with_the_weights():
    assert PositionEncoding(8).state_dict() == {}


def test_a_map_that_is_too_large_is_refused():
    encoding = PositionEncoding(4)
    assert encoding(torch.zeros(1, 4, 1, LONGEST_SIDE)).shape == (4, 1, LONGEST_SIDE)
    with pytest.raises(UserError, match="256 positions per side, and the feature map has 257 x"):
        encoding(torch.zeros(1, 4, LONGEST_SIDE + 1, 2))
