"""Compare an exported file with torch at several batch sizes, before anybody trusts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.runs.export.deployable import Exported

BATCHES = (1, 2, 5)  # an exporter may fix the batch size of its example without a word
TOLERANCE = 1e-5  # of the largest of 1 and the logit
Forward = Callable[[Tensor], Sequence[Tensor]]


def largest_difference(exported: Exported, forward: Forward) -> float:
    """Return the largest difference to torch; raise UserError if the file cannot be trusted."""
    largest = 0.0
    for batch in BATCHES:
        images = exported.example(batch)
        with torch.no_grad():
            expected = exported.module(images)
        try:
            found = forward(images)
        except Exception as error:
            raise UserError(
                f"the exported model fails on a batch of {batch}: {_first_line(error)}"
            ) from error
        for name, ours, theirs in zip(exported.module.outputs, expected, found):
            if ours.shape != theirs.shape:
                raise UserError(
                    f"the exported model gives {name} of shape {tuple(theirs.shape)} on a batch of "
                    f"{batch}, expected {tuple(ours.shape)}"
                )
            difference = (ours - theirs).abs()
            allowed = TOLERANCE * ours.abs().clamp(min=1)
            if not bool((difference <= allowed).all()):  # also if it is NaN
                raise UserError(
                    f"the exported model's {name} differs from torch by {difference.max():.2g} on "
                    f"a batch of {batch}, more than {TOLERANCE:g}"
                )
            largest = max(largest, float(difference.max()))
    return largest


def export_checked(
    exported: Exported, path: Path, kind: str, write: Callable[[Path], Forward]
) -> float:
    """Write to a temporary name, compare, and rename; a file that differs does not remain."""
    partial = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        try:
            forward = write(partial)
            largest = largest_difference(exported, forward)
        except Exception as error:
            raise UserError(
                f"head {exported.head!r} cannot be exported to {kind}: {_first_line(error)}; "
                "use --format hf, which keeps the network as it is"
            ) from error
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return largest


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
