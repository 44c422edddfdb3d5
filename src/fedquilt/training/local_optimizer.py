"""LocalOptimizer: torch's Adam and SGD over named parameters, with explicit weight decay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from fedquilt.core.flat_tree import flat_copy
from fedquilt.core.tree import SEPARATOR, Weights, clone, flatten, pieces, write_all
from fedquilt.training.local_training import LocalTraining

BACKBONE = "backbone."  # what names of the backbone's parameters begin with


class LocalOptimizer:
    """Updates the parameters of a network in place.

    Args:
        annotated: classes whose head rows decay if ``decay_unannotated_rows`` is False. With
            coupled decay, Adam turns the decay of a row without gradient into full-size steps
            towards zero.
        capturable: keep all numbers in tensors at fixed addresses, so that a captured step can be
            replayed with other numbers; :meth:`restart` writes them.
        are_all: no other parameter of the network requires gradients.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        training: LocalTraining,
        lr: float,
        head: tuple[str, ...],
        annotated: Tensor,
        *,
        capturable: bool = False,
        are_all: bool = False,
    ) -> None:
        self._parameters = dict(parameters)
        self._training = training
        self._capturable = capturable
        self._are_all = are_all
        self._lr = self._held(lr, annotated)
        self._backbone_lr = self._held(lr * training.backbone_lr, annotated)
        exempts = training.weight_decay > 0 and not training.decay_unannotated_rows
        self._decayed_by_row = [name for name in self._parameters if name in head and exempts]
        self._rows = annotated.to(torch.float32)
        self._moments: Weights = {}  # the optimizer's state, after its first step
        self._torch = self._build()
        is_sgd = training.optimizer == "sgd" and not capturable
        is_plain = is_sgd and training.momentum == 0 and training.weight_decay == 0
        is_plain = is_plain and training.backbone_lr == 1
        self._plain_lr = lr if is_plain else None

    def step(self, gradients: Mapping[str, Tensor]) -> None:
        for name, gradient in gradients.items():
            self._parameters[name].grad = gradient
        if self._training.clip_norm is not None:
            nn.utils.clip_grad_norm_(self._parameters.values(), self._training.clip_norm)
        with torch.no_grad():
            for name in self._decayed_by_row:
                self._decay_rows(self._parameters[name])
        if self._plain_lr is None:
            self._torch.step()
        else:
            self._descend(self._plain_lr)

    def backward(self, loss: Tensor) -> None:
        """Compute the gradients of the loss for these parameters only."""
        for parameter in self._parameters.values():
            parameter.grad = None  # not earlier: backward then reuses cached memory
        # With ``inputs``, torch first searches the graph for the paths to them.
        loss.backward(inputs=None if self._are_all else list(self._parameters.values()))

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Return the optimizer's state by parameter name, for ``keep_optimizer``."""
        memory: dict[str, dict[str, Tensor]] = clone(self._memory())
        return memory

    def _memory(self) -> dict[str, dict[str, Tensor]]:
        state = self._torch.state
        return {
            name: {
                key: torch.as_tensor(value)
                for key, value in state[parameter].items()
                if value is not None  # SGD without momentum
            }
            for name, parameter in self._parameters.items()
            if state.get(parameter)
        }

    def load_state(self, saved: Mapping[str, Mapping[str, Tensor]]) -> None:
        for name, memory in saved.items():
            self._torch.state[self._parameters[name]] = {
                # Adam counts steps on the host; on the device, each step would synchronise.
                key: value.clone() if key == "step" else value.to(self._parameters[name]).clone()
                for key, value in memory.items()
            }

    def restart(
        self, lr: float, annotated: Tensor, saved: Mapping[str, Mapping[str, Tensor]]
    ) -> None:
        """Reset to these values in place, as if built anew; call it after a first step."""
        assert isinstance(self._lr, Tensor)
        assert isinstance(self._backbone_lr, Tensor)
        self._lr.fill_(lr)
        self._backbone_lr.fill_(lr * self._training.backbone_lr)
        self._rows.copy_(annotated)
        self._moments = self._moments or self._moved_together()
        for piece in pieces(self._moments):
            piece.zero_()
        memory = flatten(saved)
        kept = [path for path in memory if path in self._moments]
        write_all([self._moments[path] for path in kept], [memory[path] for path in kept])

    def _moved_together(self) -> Weights:
        """Move the state of torch's optimizer into flat memory: then one call resets it."""
        places = flatten(self._memory())
        moments = flat_copy(places) if places else {}
        for path, moment in moments.items():
            name, key = path.split(SEPARATOR)
            self._torch.state[self._parameters[name]][key] = moment
        return moments

    def _held(self, lr: float, annotated: Tensor) -> float | Tensor:
        return torch.tensor(lr, device=annotated.device) if self._capturable else lr

    def _build(self) -> torch.optim.Optimizer:
        slow = self._training.backbone_lr != 1
        by_row = [self._parameters[name] for name in self._decayed_by_row]
        whole: dict[bool, list[nn.Parameter]] = {False: [], True: []}  # by: of the backbone
        for name, parameter in self._parameters.items():
            if name not in self._decayed_by_row:
                whole[slow and name.startswith(BACKBONE)].append(parameter)
        groups: list[dict[str, Any]] = [
            {"params": whole[False], "weight_decay": self._training.weight_decay}
        ]
        if by_row:
            groups.append({"params": by_row, "weight_decay": 0.0})
        if whole[True]:
            groups.append({**groups[0], "params": whole[True], "lr": self._backbone_lr})
        # Fused: all numbers of a step stay on the device, in one or two kernels.
        how: dict[str, bool] = {"fused": True} if self._capturable else {}
        if self._training.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=self._lr, momentum=self._training.momentum, **how)
        if self._capturable and self._rows.is_cuda:
            how["capturable"] = True
        kind = torch.optim.AdamW if self._training.decay == "decoupled" else torch.optim.Adam
        return kind(groups, lr=self._lr, betas=self._training.betas, **how)

    @torch.no_grad()
    def _descend(self, lr: float) -> None:
        """Take a plain SGD step: the same bits as torch's, with less overhead."""
        places: list[Tensor] = []
        slopes: list[Tensor] = []
        for parameter in self._parameters.values():
            if parameter.grad is not None:
                places.append(parameter)
                slopes.append(parameter.grad)
        if places:
            torch._foreach_add_(places, slopes, alpha=-lr)

    def _decay_rows(self, parameter: nn.Parameter) -> None:
        rows = self._rows.reshape(-1, *([1] * (parameter.ndim - 1)))
        if self._training.decay == "decoupled":
            parameter.mul_(1.0 - self._lr * self._training.weight_decay * rows)
        elif parameter.grad is not None:
            parameter.grad = parameter.grad + self._training.weight_decay * rows * parameter


def gradients_of(parameters: Mapping[str, nn.Parameter]) -> Weights:
    """Return gradients by name; zeros for a parameter that the loss does not depend on."""
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        for name, parameter in parameters.items()
    }
