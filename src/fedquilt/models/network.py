"""Network: a backbone and a head, images -> Output; and which of its entries are sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

from fedquilt.core.errors import UserError
from fedquilt.core.flat_tree import FlatTree, flat_copy
from fedquilt.core.tree import Weights, copies_of, write_all
from fedquilt.models.feature_map import MapHead, feature_map

SHOWN = 5  # how many names an error message lists


class Output(NamedTuple):
    features: Tensor  # (B, d), after pooling
    logits: Tensor  # (B, C), before the sigmoid
    per_class: Tensor | None = None  # (B, C, e), from heads with a feature per class


class Network(nn.Module):
    """A backbone from images to features, and a head from features to logits.

    A ``MapHead`` gets the feature map instead, and the caller's further arguments.
    """

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.trained_parts: tuple[str, ...] | None = None  # prefixes of names; None: all

    def train_parts(self, modules: Iterable[str]) -> None:
        """Keep all other modules of the backbone in evaluation mode and their buffers unsent."""
        self.trained_parts = ("head.", *(f"backbone.{name}." for name in modules))
        self.train(self.training)

    def train(self, mode: bool = True) -> Network:
        super().train(mode)
        if self.trained_parts is not None:
            self.backbone.eval()
            for prefix in self.trained_parts:
                self.get_submodule(prefix[:-1]).train(mode)
        return self

    def forward(self, images: Tensor, *further: Tensor) -> Output:
        if isinstance(self.head, MapHead):
            output: Output = self.head(feature_map(self.backbone, images), *further)
            return output
        features = self.backbone(images)
        return Output(features, self.head(features))


@dataclass(frozen=True)
class Layout:
    """The names of the entries that are sent, grouped by how a method may aggregate them.

    Frozen parameters and integer buffers (such as batch norm's step counter) are in no group:
    they are never sent.
    """

    body: tuple[str, ...]  # trainable, shared by all classes
    head: tuple[str, ...]  # trainable, with one row per class
    buffers: tuple[str, ...]  # floating point, such as batch norm's running statistics
    fixed: tuple[str, ...] = ()  # those of the buffers that every client builds itself, unsent

    @property
    def names(self) -> tuple[str, ...]:
        return self.body + self.head + self.buffers


def layout_of(network: nn.Module, class_count: int, *, sends_fixed: bool = True) -> Layout:
    """Group the entries; a head parameter without a row per class belongs to the body.

    ``sends_fixed``: whether buffers travel that no training changes. A module names its own in
    ``fixed_buffers``.
    """
    parameters = _parameters(network)
    head = tuple(
        name
        for name, tensor in parameters.items()
        if name.startswith("head.") and tensor.shape[:1] == (class_count,)
    )
    body = tuple(name for name in parameters if name not in head)
    buffers = tuple(_buffers(network))
    fixed = () if sends_fixed else tuple(name for name in buffers if name in _fixed(network))
    return Layout(body=body, head=head, buffers=buffers, fixed=fixed)


class LiveWeights:
    """References to a network's entries of the layout: parameters, then buffers, in its order.

    They become stale if ``network.to(...)`` replaces the buffers.
    """

    def __init__(self, network: nn.Module) -> None:
        self._entries = _parameters(network) | _buffers(network)

    def read(self) -> Weights:
        """A copy of every entry."""
        return dict(zip(self._entries, copies_of([*self._entries.values()])))

    def write(self, weights: Mapping[str, Tensor]) -> None:
        """Overwrite every entry in place; the names and shapes must be the network's."""
        _require_entries(weights, self._entries)
        write_all([*self._entries.values()], [weights[name] for name in self._entries])


class FlatWeights(LiveWeights):
    """The same for a network whose entries are moved into flat memory: few copies for any network.

    Build it before anything else keeps references to the memory of the entries.
    """

    def __init__(self, network: nn.Module, *, channels_last: bool = False) -> None:
        super().__init__(network)
        self._flat = flat_copy(self._entries, channels_last=channels_last)
        for name, entry in self._entries.items():
            entry.data = self._flat[name]

    def read(self) -> Weights:
        return self._flat.with_flats(copies_of(self._flat.flats))

    def write(self, weights: Mapping[str, Tensor]) -> None:
        if isinstance(weights, FlatTree) and weights.layout is self._flat.layout:
            write_all(self._flat.flats, weights.flats)
        else:
            super().write(weights)


def read_weights(network: nn.Module) -> Weights:
    return LiveWeights(network).read()


def write_weights(network: nn.Module, weights: Mapping[str, Tensor]) -> None:
    LiveWeights(network).write(weights)


def _require_entries(weights: Mapping[str, Tensor], entries: Mapping[str, Tensor]) -> None:
    missing = [name for name in entries if name not in weights]
    unexpected = [name for name in weights if name not in entries]
    misshaped = [
        f"{name} {tuple(weights[name].shape)} instead of {tuple(entry.shape)}"
        for name, entry in entries.items()
        if name in weights and weights[name].shape != entry.shape
    ]
    problems = [
        f"{len(names)} {kind} ({summary(names)})"
        for kind, names in (
            ("missing", missing),
            ("unexpected", unexpected),
            ("of another shape", misshaped),
        )
        if names
    ]
    if problems:
        raise UserError(
            f"these weights belong to another model: {', '.join(problems)}; "
            "use the model settings (backbone, channels, classes) they were made with"
        )


def summary(names: list[str]) -> str:
    """The first few names, for an error message."""
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")


def _parameters(network: nn.Module) -> dict[str, Tensor]:
    return {name: entry for name, entry in network.named_parameters() if entry.requires_grad}


def _fixed(network: nn.Module) -> frozenset[str]:
    return frozenset(
        f"{place}.{name}"
        for place, module in network.named_modules()
        for name in getattr(module, "fixed_buffers", ())
    )


def _buffers(network: nn.Module) -> dict[str, Tensor]:
    buffers = {name: entry for name, entry in network.named_buffers() if entry.is_floating_point()}
    if not buffers:  # most small networks: skip building the state dict in every round
        return {}
    # Only persistent buffers are state; the others are tables computed at construction.
    persistent = network.state_dict(keep_vars=True).keys()
    trained = getattr(network, "trained_parts", None) or ("",)
    return {
        name: entry
        for name, entry in buffers.items()
        if name in persistent and name.startswith(trained)
    }
