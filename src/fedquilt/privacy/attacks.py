"""Attacks by lying clients, to measure what bounds and robust rules stop. Simulations only.

A lying client may train on changed data, send a changed update, or both. It knows the updates of
all honest clients, which is more than a real one knows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.payload import Mean, Update, weight_of
from fedquilt.core.tree import Tree, flatten, leaves, tree_map, unflatten
from fedquilt.data.client_data import ClientData
from fedquilt.training.client import LOSS_PART
from fedquilt.training.method import State

ClientRound: TypeAlias = tuple[str, Update, State]
TRIGGER = 3  # pixels per side of the bright corner of a backdoor


class Attack:
    """A way to lie; override one of the hooks to try one of your own."""

    name: str = "attack"
    least: int = 1  # lying clients that it takes

    def data(self, data: ClientData) -> ClientData:
        """What a lying client trains on, given its own data."""
        return data

    def update(self, own: Update, honest: Sequence[Update]) -> Update:
        """What it sends, given its own update and those of all honest clients."""
        return own


@dataclass(frozen=True)
class Scaled(Attack):
    """Every mean times a factor: -1 turns an update round."""

    name: str = "scale"
    factor: float = 100.0

    def update(self, own: Update, honest: Sequence[Update]) -> Update:
        return with_values(own, lambda part, path, leaf: leaf * self.factor)


@dataclass(frozen=True)
class Huge(Attack):
    """One number of 1e38."""

    name: str = "huge"

    def update(self, own: Update, honest: Sequence[Update]) -> Update:
        def spoilt(leaf: Tensor) -> Tensor:
            changed = leaf.clone()
            changed.reshape(-1)[0] = 1e38
            return changed

        return with_values(own, lambda part, path, leaf: spoilt(leaf))


@dataclass(frozen=True)
class FlippedLabels(Attack):
    """Train on flipped labels; with ``weight``, claim this number of images."""

    name: str = "label-flip"
    weight: float | None = None

    def data(self, data: ClientData) -> ClientData:
        return replace(data, labels=torch.where(data.known, 1 - data.labels, data.labels))

    def update(self, own: Update, honest: Sequence[Update]) -> Update:
        if self.weight is None:
            return own
        return {
            name: replace(part, weight=torch.where(weight_of(part) > 0, self.weight, 0.0))
            if isinstance(part, Mean) and name != LOSS_PART
            else part
            for name, part in own.items()
        }


@dataclass(frozen=True)
class Hidden(Attack):
    """The honest mean, less 1.5 standard deviations of every number: no outlier anywhere."""

    name: str = "hidden"
    deviations: float = 1.5

    def update(self, own: Update, honest: Sequence[Update]) -> Update:
        def shifted(sent: Tensor) -> Tensor:
            return sent.mean(0) - self.deviations * sent.std(0, correction=0)

        return with_values(own, lambda part, path, leaf: shifted(_stack(honest, part, path)))


@dataclass(frozen=True)
class MeanShift(Attack):
    """Against the mean, as far as the farthest two honest updates are from each other.

    The largest step against the honest mean for which no honest update is farther from the lie
    than from some other honest one, part by part (min-max attack of Shejwalkar and Houmansadr).
    """

    name: str = "mean-shift"

    def update(self, own: Update, honest: Sequence[Update]) -> Update:
        return {
            name: _shifted(part, [each[name] for each in honest])  # type: ignore[misc]
            if isinstance(part, Mean) and name != LOSS_PART
            else part
            for name, part in own.items()
        }


@dataclass(frozen=True)
class Colluding(Attack):
    """All attackers send the negated honest mean; being equal, they are nearest neighbours."""

    name: str = "collude"
    least: int = 2

    def update(self, own: Update, honest: Sequence[Update]) -> Update:
        return with_values(own, lambda part, path, leaf: -_stack(honest, part, path).mean(0))


@dataclass(frozen=True)
class Backdoor(Attack):
    """A bright corner on half of the images, which are then labelled with the target class."""

    name: str = "backdoor"
    target: int | None = None  # a class; default: the first that the client annotates
    boost: float = 3.0  # times its update, so that it survives averaging

    def data(self, data: ClientData) -> ClientData:
        target = self.target_of(data)
        pixels = data.pixels(torch.arange(len(data)))
        chosen = torch.arange(len(data)) % 2 == 0
        labels, known = data.labels.clone(), data.known.clone()
        labels[chosen, target], known[chosen, target] = 1, True
        pixels[chosen] = triggered(pixels[chosen])
        return replace(
            data, images=pixels, indices=torch.arange(len(data)), labels=labels, known=known
        )

    def update(self, own: Update, honest: Sequence[Update]) -> Update:
        return with_values(own, lambda part, path, leaf: leaf * self.boost)

    def target_of(self, data: ClientData) -> int:
        if self.target is not None:
            return self.target
        return int(data.known.any(0).nonzero()[0])


ATTACKS: Mapping[str, Callable[[], Attack]] = {
    "scale": lambda: Scaled("scale", 100.0),
    "sign-flip": lambda: Scaled("sign-flip", -10.0),
    "sign-flip-small": lambda: Scaled("sign-flip-small", -1.0),
    "label-flip": FlippedLabels,
    "label-flip-heavy": lambda: FlippedLabels("label-flip-heavy", 1e9),
    "huge": Huge,
    "hidden": Hidden,
    "mean-shift": MeanShift,
    "collude": Colluding,
    "backdoor": Backdoor,
}


def find_attack(name: str) -> Attack:
    if name not in ATTACKS:
        raise UserError(f"unknown attack {name!r}{nearest(name, ATTACKS)}")
    return ATTACKS[name]()


@dataclass(frozen=True)
class Attackers:
    """The lying clients of a simulation, and how they lie."""

    attack: Attack
    names: tuple[str, ...]

    @classmethod
    def first(cls, attack: Attack, count: int, clients: Iterable[str]) -> Attackers:
        """The first ``count`` clients lie; the others must be the majority."""
        population = sorted(clients)
        if not attack.least <= count < len(population):
            raise UserError(
                f"{count} of {len(population)} clients cannot lie by {attack.name!r}; expected "
                f"{attack.least} to {len(population) - 1}"
            )
        return cls(attack, tuple(population[:count]))

    def poisoned(self, clients: Mapping[str, ClientData]) -> dict[str, ClientData]:
        return {
            name: self.attack.data(data) if name in self.names else data
            for name, data in clients.items()
        }

    def tampered(self, rounds: Iterable[ClientRound]) -> Iterator[ClientRound]:
        """The rounds of a cohort, with the lies last: they depend on the honest updates."""
        honest: list[Update] = []
        lying: list[ClientRound] = []
        for name, update, state in rounds:
            if name in self.names:
                lying.append((name, update, state))
            else:
                honest.append(update)
                yield name, update, state
        for name, update, state in lying:
            yield name, self.attack.update(update, honest) if honest else update, state


def triggered(pixels: Tensor) -> Tensor:
    """Images (N, channels, height, width) uint8 with the trigger in their lower right corner."""
    stamped = pixels.clone()
    stamped[..., -TRIGGER:, -TRIGGER:] = 255
    return stamped


def with_values(update: Update, change: Callable[[str, str, Tensor], Tensor]) -> Update:
    """Change every tensor of every mean but the loss; ``change`` gets part, path and tensor."""
    return {
        name: replace(
            part,
            value=unflatten(
                {path: change(name, path, leaf).to(leaf) for path, leaf in leaves(part.value)}
            ),
        )
        if isinstance(part, Mean) and name != LOSS_PART
        else part
        for name, part in update.items()
    }


def _stack(honest: Sequence[Update], part: str, path: str) -> Tensor:
    return torch.stack([flatten(each[part].value)[path].double() for each in honest])


def _shifted(own: Mean, honest: Sequence[Mean]) -> Mean:
    rows = torch.stack([_flat(part.value) for part in honest])
    mean = rows.mean(0)
    length = mean.norm()
    if length == 0 or len(honest) < 2:
        return own
    gaps = torch.cdist(rows, rows)
    reach = gaps.max()
    low, high = 0.0, float(2 * (reach + length))
    for _ in range(40):  # bisection: the distance grows with the step
        middle = (low + high) / 2
        lie = mean - middle * mean / length
        if bool(((rows - lie).norm(dim=1) <= reach).all()):
            low = middle
        else:
            high = middle
    lie = mean - low * mean / length
    sizes = [leaf.numel() for _, leaf in leaves(own.value)]
    pieces = iter(lie.split(sizes))
    return replace(
        own,
        value=tree_map(lambda leaf: next(pieces).reshape(leaf.shape).to(leaf.dtype), own.value),
    )


def _flat(tree: Tree) -> Tensor:
    return torch.cat([leaf.reshape(-1).double() for _, leaf in leaves(tree)])
