"""Annotation rules: which classes each client annotates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.seeding import seed_for


@dataclass(frozen=True, kw_only=True)
class Annotation(ABC):
    """Settings are fields; the mask hides labels and never makes an un-annotated one known."""

    needs_complete_data: ClassVar[bool] = False  # the rule is untrue of data with blank cells

    @abstractmethod
    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        """(K, C) bool, from the clients' and the classes' names."""


@dataclass(frozen=True, kw_only=True)
class Full(Annotation):
    """Needs data in which every label is annotated; for others see ``recorded``."""

    needs_complete_data: ClassVar[bool] = True

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        return torch.ones(len(clients), len(classes), dtype=torch.bool)


@dataclass(frozen=True, kw_only=True)
class Listed(Annotation):
    """A client is given by its name, or by its position counted from 0; a name goes first."""

    annotates: Mapping[str, tuple[str, ...]]  # client -> the classes it annotates

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        position = {str(number): number for number in range(len(clients))}
        position |= {name: number for number, name in enumerate(clients)}
        column = {name: number for number, name in enumerate(classes)}
        mask = torch.zeros(len(clients), len(classes), dtype=torch.bool)
        listed: dict[int, str] = {}
        for client, names in self.annotates.items():
            if client not in position:
                raise UserError(
                    f"annotates has no such client: {client!r}{nearest(client, clients)}"
                )
            row = position[client]
            if row in listed:
                raise UserError(
                    f"annotates lists client {clients[row]!r} twice, as {listed[row]!r} and "
                    f"{client!r}; keep one"
                )
            listed[row] = client
            for name in names:
                if name not in column:
                    raise UserError(
                        f"client {client!r} annotates {name!r}, which is no class of the data"
                        f"{nearest(name, classes)}"
                    )
                mask[row, column[name]] = True
        unlisted = [name for row, name in enumerate(clients) if row not in listed]
        if unlisted:
            raise UserError(
                f"annotates leaves out {', '.join(unlisted)}; list the classes of each client, "
                "an empty list for one that annotates nothing"
            )
        return mask


@dataclass(frozen=True, kw_only=True)
class Recorded(Annotation):
    """Hides nothing; blank cells of the data stay un-annotated."""

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        return torch.ones(len(clients), len(classes), dtype=torch.bool)


Mask = npt.NDArray[np.bool_]


def deal_with_owners(
    generator: np.random.Generator, *, clients: int, classes: int, each: int
) -> Mask:
    """(K, C): every class first gets an owner, then each client is filled up at random."""
    refuse_impossible_deal(clients=clients, classes=classes, each=each)
    mask = np.zeros((clients, classes), dtype=np.bool_)
    mask[np.arange(classes) % clients, generator.permutation(classes)] = True
    for row in mask:
        rest = np.flatnonzero(~row)
        row[generator.choice(rest, size=each - int(row.sum()), replace=False)] = True
    return mask


def deal_evenly(
    generator: np.random.Generator, *, clients: int, classes: int, each: int, dealings: int = 1
) -> Mask:
    """(dealings, K, C): within a dealing, two classes' numbers of holders differ by at most 1."""
    refuse_impossible_deal(clients=clients, classes=classes, each=each)
    holders = np.zeros((dealings, classes), dtype=np.int64)
    hands = np.zeros((dealings, clients, classes), dtype=np.bool_)
    for client in range(clients):
        # The classes with the fewest holders come next, in random order among equals.
        turn = np.argsort(holders + generator.random(holders.shape), axis=1, kind="stable")
        np.put_along_axis(hands[:, client], turn[:, :each], True, axis=1)
        holders += hands[:, client]
    return hands


def refuse_impossible_deal(*, clients: int, classes: int, each: int) -> None:
    if not 1 <= each <= classes:
        raise UserError(f"a client can have between 1 and {classes} of the classes, found {each}")
    if clients * each < classes:
        raise UserError(
            f"{clients} clients with {each} classes each reach at most {clients * each} of the "
            f"{classes} classes, so some class would have no client; use more clients, or at "
            f"least {-(-classes // clients)} classes per client"
        )


@dataclass(frozen=True, kw_only=True)
class Identified(Annotation):
    """Classes are dealt out one by one, then each client is filled up at random.

    The authors fill up from all classes, so a client can draw one that it already has and end
    with fewer; ``published`` does the same and gives the paper's tables, for X-rays from the
    alphabetical class order and for ISIC from the challenge's. Otherwise every client has exactly
    ``identified`` classes.
    """

    identified: int = 3  # classes per client, s
    published: bool = False  # the authors' rule instead of the repaired one
    published_seed: int = 523  # of the paper's tables; used only by the published rule
    class_order: Literal["data", "alphabetical"] = "data"  # the order before shuffling

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        count = len(classes)
        refuse_impossible_deal(clients=len(clients), classes=count, each=self.identified)
        if self.published:
            dealt = self._published_deal(len(clients), count)
        else:
            generator = np.random.default_rng(seed_for(seed, "annotation", "identified"))
            dealt = deal_with_owners(
                generator, clients=len(clients), classes=count, each=self.identified
            )
        order = list(range(count))
        if self.class_order == "alphabetical":
            order.sort(key=lambda column: classes[column])
        mask = torch.empty(len(clients), count, dtype=torch.bool)
        mask[:, order] = torch.from_numpy(dealt)
        return mask

    def _published_deal(self, clients: int, classes: int) -> npt.NDArray[np.bool_]:
        generator = Random(self.published_seed)  # the standard library's, as the authors'
        shuffled = list(range(classes))
        generator.shuffle(shuffled)
        dealt = np.zeros((clients, classes), dtype=np.bool_)
        for client in range(clients):
            own = shuffled[client::clients]
            extra = generator.sample(shuffled, self.identified - len(own))
            dealt[client, own + extra] = True
        return dealt


@dataclass(frozen=True, kw_only=True)
class Missing(Annotation):
    """Which classes a client lacks is random, but every class has an annotator.

    The authors' code draws for each client alone, so a class can end up without any.
    """

    missing: int  # classes that a client does not annotate, m
    balanced: bool = False  # every class has nearly the same number of annotators
    one_to_one: bool = False  # client i annotates class i alone, as the authors do for m = C - 1

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        each = len(classes) - self.missing
        if self.missing < 0 or each < 1:
            raise UserError(
                f"missing must be between 0 and {len(classes) - 1} for {len(classes)} classes, "
                f"found {self.missing}"
            )
        if self.one_to_one:
            if each != 1 or len(clients) != len(classes):
                raise UserError(
                    f"one_to_one needs one annotated class per client and as many clients as "
                    f"classes; found {each} per client, {len(clients)} clients and "
                    f"{len(classes)} classes; turn it off or change missing and clients"
                )
            return torch.eye(len(classes), dtype=torch.bool)
        generator = np.random.default_rng(seed_for(seed, "annotation", "missing"))
        counts = {"clients": len(clients), "classes": len(classes), "each": each}
        dealt = (
            deal_evenly(generator, **counts)[0]
            if self.balanced
            else deal_with_owners(generator, **counts)
        )
        return torch.from_numpy(dealt)
