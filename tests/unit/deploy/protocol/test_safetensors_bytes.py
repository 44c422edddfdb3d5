"""The safetensors library reads what we write without copies."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load

from fedquilt.core.tree import same_bits
from fedquilt.deploy.protocol.messages import DTYPES, as_safetensors


def test_the_library_reads_every_dtype_and_shape() -> None:
    tree = {f"x{number}": torch.arange(3).to(dtype) for number, dtype in enumerate(DTYPES)}
    tree |= {"scalar": torch.tensor(2.5), "none": torch.zeros(0, 4), "t": torch.ones(2, 3).T}
    assert same_bits(load(b"".join(as_safetensors(tree))), tree)


def test_an_empty_tree_is_a_valid_file() -> None:
    assert load(b"".join(as_safetensors({}))) == {}


def test_a_dtype_that_the_format_does_not_have_is_refused() -> None:
    with pytest.raises(KeyError):
        b"".join(as_safetensors({"x": torch.zeros(2, dtype=torch.complex64)}))
