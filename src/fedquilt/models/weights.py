"""Load a backbone's initial weights from a safetensors file, with any prefix and head."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.models.network import summary

LEAST_SHARE = 0.9  # of the backbone's entries that the file must hold
PICKLED = (".pt", ".pth", ".bin", ".ckpt", ".pkl")


@dataclass(frozen=True)
class WeightsReport:
    """Which entries were loaded; integer counters are left out."""

    matched: tuple[str, ...]  # entries of the backbone loaded from the file
    unmatched: tuple[str, ...]  # entries of the backbone left at random values
    unused: tuple[str, ...]  # entries of the file, such as its head

    def __str__(self) -> str:
        total = len(self.matched) + len(self.unmatched)
        parts = [f"{len(self.matched)} of {total} entries of the backbone read"]
        if self.unmatched:
            parts.append(f"left random: {summary(list(self.unmatched))}")
        if self.unused:
            parts.append(f"not used: {summary(list(self.unused))}")
        return "; ".join(parts)


def load_backbone(backbone: nn.Module, path: Path) -> WeightsReport:
    """Copy the file's entries into the backbone by name, ignoring a common prefix."""
    stored = _read(path)
    entries = {
        name: entry for name, entry in backbone.state_dict().items() if entry.is_floating_point()
    }
    prefix = _prefix(stored, entries)
    usable: dict[str, Tensor] = {}
    for name, entry in entries.items():
        tensor = stored.get(prefix + name)
        if tensor is not None:
            fitted = _fit(tensor.to(torch.float32), entry.shape)
            if fitted is not None:
                usable[name] = fitted
    report = WeightsReport(
        matched=tuple(usable),
        unmatched=tuple(name for name in entries if name not in usable),
        unused=tuple(key for key in stored if key.removeprefix(prefix) not in usable),
    )
    if len(usable) < LEAST_SHARE * len(entries):
        raise UserError(
            f"{path} does not hold the weights of this backbone: {len(usable)} of {len(entries)} "
            f"entries match by name and shape; without a match: "
            f"{summary(list(report.unmatched))}; the file holds: {summary(list(stored))}; "
            "set model.backbone to the one the file was made for"
        )
    with torch.no_grad():
        for name, tensor in usable.items():
            entries[name].copy_(tensor)
    return report


def _read(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if path.suffix in PICKLED:
        raise UserError(
            f"weights {path} may be a pickle, which can run code when it is opened; if you trust "
            "it, convert it: safetensors.torch.save_file(torch.load(path, weights_only=True), "
            f"{str(path.with_suffix('.safetensors'))!r})"
        )
    if path.suffix != ".safetensors":
        raise UserError(
            f"unknown weights {str(path)!r}; expected 'random', 'timm' or the path of a "
            ".safetensors file"
        )
    if not path.is_file():
        raise UserError(f"no weights file at {path}; give the path of a .safetensors file")
    try:
        stored: dict[str, Tensor] = load_file(path)
    except SafetensorError as error:
        raise UserError(f"{path} is not a readable .safetensors file: {error}") from error
    stored = {name: tensor for name, tensor in stored.items() if tensor.is_floating_point()}
    broken = [name for name, tensor in stored.items() if not tensor.isfinite().all()]
    if broken:
        raise UserError(f"{path} holds NaN or infinity in {summary(broken)}; create the file again")
    return stored


def _prefix(stored: Iterable[str], entries: Mapping[str, Tensor]) -> str:
    """Return the prefix before the backbone's names in the file, by majority."""
    votes: Counter[str] = Counter()
    for key in stored:
        parts = key.split(".")
        for start in range(len(parts)):
            if ".".join(parts[start:]) in entries:
                votes["".join(f"{part}." for part in parts[:start])] += 1
    return max(votes, key=lambda prefix: (votes[prefix], -len(prefix)), default="")


def _fit(tensor: Tensor, shape: torch.Size) -> Tensor | None:
    """Return the tensor if its shape agrees; sum a colour convolution over channels for grey.

    The sum is equivalent to repeating grey pixels over three channels.
    """
    if tensor.ndim == 4 and tensor.shape[1] == 3 and shape[1:2] == (1,):
        tensor = tensor.sum(1, keepdim=True)
    return tensor if tensor.shape == shape else None
