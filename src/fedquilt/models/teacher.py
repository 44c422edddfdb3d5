"""Mean teacher: an exponential moving average (EMA) of the weights in training."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from fedquilt.core.tree import Weights, clone, copies_of, write_all
from fedquilt.models.network import Output


def ema_update(
    teacher: Weights, network: nn.Module, decay: float | Tensor, copied: Collection[str] = ()
) -> Weights:
    """Set the teacher to decay * teacher + (1 - decay) * network, and return it.

    Batch-norm statistics are averaged too, so that they fit the teacher's weights. The teacher is
    overwritten in place, to save memory traffic; the caller must own it.

    Args:
        copied: entries copied from the network instead of averaged, as FixMatch does with
            batch-norm statistics.
    """
    entries = dict(network.named_parameters()) | dict(network.named_buffers())
    averaged = [name for name in teacher if name not in copied]
    replaced = [name for name in teacher if name in copied]
    old, new = [teacher[name] for name in averaged], [entries[name].detach() for name in averaged]
    with torch.no_grad():  # fused launches for all tensors
        if isinstance(decay, Tensor):  # on the device: reading it here would synchronise
            torch._foreach_mul_(old, decay)
            torch._foreach_add_(old, torch._foreach_mul(new, 1 - decay))
        else:
            torch._foreach_lerp_(old, new, 1 - decay)
    write_all([teacher[name] for name in replaced], [entries[name] for name in replaced])
    return teacher


def started(state: Mapping[str, Any], weights: Weights, zero: Tensor) -> dict[str, Any]:
    """Return the state with a teacher that a round may overwrite, at first these weights."""
    teacher = {"teacher": weights, "teacher_steps": zero, **state}
    return {**teacher, "teacher": clone(teacher["teacher"])}


def advanced(state: Mapping[str, Any], network: nn.Module, decay: float) -> dict[str, Any]:
    """Return a client's state after one more step of its teacher, if it has one."""
    if "teacher" not in state:
        return dict(state)
    teacher, steps = state["teacher"], state["teacher_steps"]
    teacher = ema_update(teacher, network, young_decay(steps, decay))
    return {**state, "teacher": teacher, "teacher_steps": steps + 1}


def young_decay(steps: Tensor, decay: float) -> Tensor:
    """Return min(1 - 1 / (steps + 1), decay), with which a new teacher adapts fast."""
    return (1 - 1 / (steps + 1)).clamp(max=decay)


def teacher_output(
    mode: Literal["evaluation", "training"],
    network: nn.Module,
    forward: Callable[[Weights, Tensor], Output],
    teacher: Weights,
    images: Tensor,
) -> Output:
    """Return the teacher's output in evaluation mode, by ``forward``, or in training mode."""
    if mode == "evaluation":
        return forward(teacher, images)
    return training_mode_output(network, teacher, images)


def training_mode_output(network: nn.Module, teacher: Weights, images: Tensor) -> Output:
    """Return the teacher's output with the batch's own batch-norm statistics.

    ``network`` must be in training mode. Batch norm updates copies of the running statistics, so
    the teacher's are left unchanged.
    """
    parameters = dict(network.named_parameters())
    statistics = [name for name in teacher if name not in parameters]
    copies = copies_of([teacher[name] for name in statistics])
    with torch.no_grad():
        output: Output = torch.func.functional_call(
            network, teacher | dict(zip(statistics, copies)), (images,)
        )
    return output
