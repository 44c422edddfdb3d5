from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from support.packed_files import mnist_images, write_mnist

from fedquilt.core.errors import UserError
from fedquilt.data.sources.mnist.load import Mnist


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("below", ["", "raw", "MNIST/raw"])
def test_idx_files_are_read(tmp_path: Path, monkeypatch, packed: bool, below: str) -> None:
    write_mnist(tmp_path / below, monkeypatch, packed=packed)
    splits = Mnist(folder=str(tmp_path)).load(tmp_path / "cache")
    assert np.array_equal(splits.train.images[:, 0].numpy(), mnist_images(0, 80))
    assert np.array_equal(splits.test.images[:, 0].numpy(), mnist_images(80, 40))
    assert splits.train.labels.argmax(1).tolist() == [row % 10 for row in range(80)]
    assert splits.test.labels.sum(0).tolist() == [4] * 10
    assert splits.train.classes[7] == "digit 7"


def test_missing_and_wrong_files_are_named(tmp_path: Path, monkeypatch) -> None:
    source, cache = Mnist(folder=str(tmp_path)), tmp_path / "cache"
    with pytest.raises(UserError, match="holds no train-images-idx3-ubyte or train-images-idx3-u"):
        source.load(cache)
    write_mnist(tmp_path, monkeypatch)
    path = tmp_path / "t10k-labels-idx1-ubyte.gz"
    content = gzip.decompress(path.read_bytes())
    path.unlink()
    with pytest.raises(UserError, match=r"holds no t10k-labels-idx1-ubyte .* MNIST page"):
        source.load(cache)
    path.write_bytes(gzip.compress(content)[:-9])
    with pytest.raises(UserError, match=r"t10k-labels-idx1-ubyte.gz cannot be read"):
        source.load(cache)
    # 48 bytes: a header of 8 (magic 0x801, the count 40) and 40 digits
    path.write_bytes(gzip.compress(content[:-1]))
    with pytest.raises(UserError, match=r"has 47 bytes .* expected 48 bytes .* 0000080100000028"):
        source.load(cache)
    path.write_bytes(gzip.compress(content[:-1] + b"\x0b"))
    with pytest.raises(UserError, match="holds the digit 11; expected digits 0 to 9"):
        source.load(cache)
