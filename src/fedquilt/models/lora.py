"""Low-rank adapters (LoRA) through the package peft: only they and the head are trained and sent.

Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022.
"""

from __future__ import annotations

import torch
from torch import nn

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Weights

LORA_MARK = "lora_"  # in the names of adapters' weights
BASE = ".base_layer"  # peft puts this between a layer's name and its weights' names


def add_lora(encoder: nn.Module, rank: int) -> None:
    """Put an adapter beside every linear layer, or every convolution if there is no linear one."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise UserError(
            "model.train = 'lora' needs the package peft: pip install 'fedquilt[lora]'"
        ) from None
    targets = _targets(encoder)
    if rank < 1 or not targets:
        raise UserError(
            f"model.train = 'lora' needs lora_rank of at least 1 and a network with linear layers "
            f"or ungrouped convolutions; found rank {rank} and {len(targets)} such layers"
        )
    # lora_alpha = rank: the adapters' product is added as it is.
    config = LoraConfig(r=rank, lora_alpha=rank, lora_dropout=0.0, target_modules=targets)
    inject_adapter_in_model(config, encoder)


def _targets(encoder: nn.Module) -> list[str]:
    linear = [name for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]
    return linear or [
        name
        for name, module in encoder.named_modules()
        if isinstance(module, nn.Conv2d) and module.groups == 1
    ]


def without_lora(network: nn.Module) -> Weights:
    """Return the state of the network with its adapters added into the layers, by plain names."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    adapted = [module for module in network.modules() if isinstance(module, BaseTunerLayer)]
    with torch.no_grad():
        for module in adapted:
            module.merge()
        merged = {
            name.replace(BASE, ""): entry.clone()
            for name, entry in network.state_dict().items()
            if LORA_MARK not in name
        }
        for module in adapted:
            module.unmerge()
    return merged
