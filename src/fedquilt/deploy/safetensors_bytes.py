"""Trees in the safetensors format without copies: the library makes three of a whole model."""

from __future__ import annotations

import json
from collections.abc import Iterator

import torch
from torch import Tensor

from fedquilt.tree import Tree, flatten

# The format's own names: https://github.com/huggingface/safetensors#format
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
ALIGNMENT = 8  # of the numbers behind the header, which is filled up with blanks


def as_safetensors(tree: Tree) -> Iterator[bytes | memoryview]:
    """The pieces of the file, in order; they lend the tensors' own memory."""
    # Wide numbers first, so that every tensor begins at a multiple of its width.
    flat = sorted(flatten(tree).items(), key=lambda item: (-item[1].element_size(), item[0]))
    header, end = {}, 0
    for name, leaf in flat:
        start, end = end, end + leaf.nbytes
        header[name] = {
            "dtype": DTYPES[leaf.dtype],
            "shape": list(leaf.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    yield len(text).to_bytes(8, "little")
    yield text
    for _, leaf in flat:
        yield _memory(leaf)


def _memory(leaf: Tensor) -> memoryview:
    flat = leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return flat.numpy().data
