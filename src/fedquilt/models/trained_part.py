"""Which part of a network is trained: all of it, the head, or the head and the last block.

What is not trained is not sent either: every client builds it from the same seed or file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias

from torch import nn

from fedquilt.core.errors import UserError
from fedquilt.models.lora import LORA_MARK, add_lora
from fedquilt.models.network import Network
from fedquilt.models.projection import Projected

TrainedPart: TypeAlias = Literal["all", "head", "last-block", "lora"]


def train_only(network: Network, part: TrainedPart, lora_rank: int) -> None:
    """Freeze the weights and the batch-norm statistics of the rest of the backbone."""
    if part == "all":
        return
    backbone = network.backbone
    encoder, prefix = backbone, ""
    if isinstance(backbone, Projected):
        encoder, prefix = backbone.encoder, "encoder."
    if part == "lora":
        add_lora(encoder, lora_rank)
    trained = {f"{prefix}{name}" for name in _trained_names(encoder, part)}
    for name, entry in backbone.named_parameters():
        if name not in trained and name.startswith(prefix):
            entry.requires_grad_(False)
    network.train_parts(_wholly_trained(backbone))
    if not any(entry.requires_grad for entry in network.parameters()):
        raise UserError(
            f"model.train = {part!r} leaves nothing to train: the head of this network is fixed; "
            "use 'last-block' or 'all'"
        )


def _trained_names(encoder: nn.Module, part: TrainedPart) -> list[str]:
    if part == "last-block":
        return last_block(encoder)
    if part == "lora":
        return [name for name, _ in encoder.named_parameters() if LORA_MARK in name]
    return []


def last_block(encoder: nn.Module) -> list[str]:
    """Return the parameters from the last block that has a weight matrix on.

    timm groups the parameters of every model by depth; other networks count by child modules. A
    normalisation after the last block belongs to it.
    """
    groups = _by_depth(encoder)
    shapes = {name: entry.ndim for name, entry in encoder.named_parameters()}
    names: list[str] = []
    for group in reversed(groups):
        names += group
        if any(shapes[name] > 1 for name in group):
            break
    if len(names) == len(shapes):
        raise UserError(
            f"model.train = 'last-block': {type(encoder).__name__} is one block; use 'head' or "
            "'all'"
        )
    return names


def _by_depth(encoder: nn.Module) -> list[list[str]]:
    if hasattr(encoder, "group_matcher"):
        from timm.models import group_parameters

        matcher: Callable[..., Any] = encoder.group_matcher  # type: ignore[assignment]
        found = group_parameters(encoder, matcher(coarse=True), reverse=True)
        depths = sorted(set(found.values()))
        return [[name for name, at in found.items() if at == depth] for depth in depths]
    name, block = "", encoder
    while not name or isinstance(block, nn.Sequential):
        inner = [pair for pair in block.named_children() if list(pair[1].parameters())]
        if not inner:
            break
        name, block = f"{name}{inner[-1][0]}.", inner[-1][1]
    names = [each for each, _ in encoder.named_parameters()]
    return [
        [each for each in names if not each.startswith(name)],
        [each for each in names if each.startswith(name)],
    ]


def _wholly_trained(backbone: nn.Module) -> Iterable[str]:
    """Yield the outermost modules of which every weight is trained."""
    found: list[str] = []
    for name, module in backbone.named_modules():
        entries = list(module.parameters())
        is_trained = bool(entries) and all(entry.requires_grad for entry in entries)
        if is_trained and not any(name.startswith(f"{outer}.") for outer in found):
            found.append(name)
    return found
