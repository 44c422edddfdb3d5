from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Holding
from fedquilt.runs.trained_images import (
    FILE,
    hashes_of,
    read_trained_images,
    write_trained_images,
)

IMAGES = torch.randint(0, 256, (6, 1, 4, 4), dtype=torch.uint8)


def holding(name: str, *indices: int) -> Holding:
    return Holding(name, torch.tensor(indices), torch.ones(len(indices), 2, dtype=torch.bool))


def test_images_of_clients_are_found_again(tmp_path: Path):
    write_trained_images(tmp_path, IMAGES, [holding("a", 0, 3), holding("b", 3, 5)])
    trained = read_trained_images(tmp_path)
    assert trained is not None
    assert len(trained.hashes) == 3  # image 3 is held twice
    assert trained.are_among(IMAGES).tolist() == [True, False, False, True, False, True]
    changed = IMAGES.clone()
    changed[0, 0, 0, 0] ^= 1
    assert trained.are_among(changed)[0].item() is False
    # The same bytes in another shape are another image.
    assert trained.are_among(IMAGES.reshape(6, 1, 2, 8)).tolist() == [False] * 6


def test_folders_cannot_be_compared_with_each_other(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        write_trained_images(tmp_path / name, IMAGES, [holding("a", 0, 1, 2)])
    one, two = (read_trained_images(tmp_path / name) for name in ("one", "two"))
    assert one is not None
    assert two is not None
    assert not set(one.hashes.tolist()) & set(two.hashes.tolist())


def test_a_resumed_run_keeps_its_file(tmp_path: Path):
    write_trained_images(tmp_path, IMAGES, [holding("a", 0)])
    before = (tmp_path / FILE).read_bytes()
    write_trained_images(tmp_path, IMAGES, [holding("a", 0)])
    assert (tmp_path / FILE).read_bytes() == before


def test_a_run_without_the_file_and_a_damaged_file(tmp_path: Path):
    assert read_trained_images(tmp_path) is None
    (tmp_path / FILE).write_bytes(b"PK\x03\x04 damaged")
    with pytest.raises(UserError, match="not known which images the model was trained on"):
        read_trained_images(tmp_path)


def test_no_image_has_no_hash():
    assert len(hashes_of(IMAGES[:0], b"key")) == 0
