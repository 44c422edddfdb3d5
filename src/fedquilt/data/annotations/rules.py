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
from fedquilt.core.wording import counted

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Annotation(ABC):
    """Base of annotation rules; its fields are the settings in a recipe's ``[annotation]``.

    A rule can hide annotations of the data; it never adds any.
    """

    needs_complete_data: ClassVar[bool] = False  # whether every label must be annotated

    @abstractmethod
    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        """(K, C) bool: whether the client annotates the class."""


@dataclass(frozen=True, kw_only=True)
class Full(Annotation):
    """Every client annotates every class: the upper bound.

    Needs data in which every label is annotated; use ``recorded`` for other data.
    """

    needs_complete_data: ClassVar[bool] = True

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        return torch.ones(len(clients), len(classes), dtype=torch.bool)


@dataclass(frozen=True, kw_only=True)
class Recorded(Annotation):
    """Keeps the annotations of the data.

    Nothing is hidden; blank cells stay unannotated.
    """

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        return torch.ones(len(clients), len(classes), dtype=torch.bool)


@dataclass(frozen=True, kw_only=True)
class Listed(Annotation):
    """Annotated classes as the recipe lists them for each client.

    A client is given by its name or by its position, counted from 0; names take precedence.
    """

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
                        f"client {client!r} annotates {name!r}, which is not a class of the data"
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
class Identified(Annotation):
    """FedLSM's setting: every client annotates the same number of classes.

    Every class first gets one annotator, then each client is filled up at random. The authors
    fill up from all classes, so that a client can draw a class twice and annotate fewer;
    ``published`` does the same and gives the paper's tables, for X-rays with the classes in
    alphabetical order and for ISIC in the challenge's. Otherwise every client annotates exactly
    ``identified`` classes.
    """

    identified: int = 3  # classes per client, s
    published: bool = False  # the authors' rule instead of the corrected one
    published_seed: int = 523  # of the paper's tables; used only by the published rule
    class_order: Literal["data", "alphabetical"] = "data"  # the order before shuffling

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        count = len(classes)
        check_class_counts(clients=len(clients), classes=count, each=self.identified)
        if self.published:
            assigned = self._published_mask(len(clients), count)
        else:
            generator = np.random.default_rng(seed_for(seed, "annotation", "identified"))
            assigned = assign_with_owners(
                generator, clients=len(clients), classes=count, each=self.identified
            )
        order = list(range(count))
        if self.class_order == "alphabetical":
            order.sort(key=lambda column: classes[column])
        mask = torch.empty(len(clients), count, dtype=torch.bool)
        mask[:, order] = torch.from_numpy(assigned)
        return mask

    def _published_mask(self, clients: int, classes: int) -> Mask:
        generator = Random(self.published_seed)  # the authors use the standard library's generator
        shuffled = list(range(classes))
        generator.shuffle(shuffled)
        assigned = np.zeros((clients, classes), dtype=np.bool_)
        for client in range(clients):
            own = shuffled[client::clients]
            extra = generator.sample(shuffled, self.identified - len(own))
            assigned[client, own + extra] = True
        return assigned


@dataclass(frozen=True, kw_only=True)
class Missing(Annotation):
    """FedMLP's setting: every client lacks annotations of the same number of classes.

    The missing classes are random, but every class has an annotator. The authors' code draws for
    each client independently, so a class can end up without an annotator.
    """

    missing: int  # classes that a client does not annotate, m
    balanced: bool = False  # every class has nearly the same number of annotators
    one_to_one: bool = False  # client i annotates only class i, as the authors do for m = C - 1

    def mask(self, clients: tuple[str, ...], classes: tuple[str, ...], seed: int) -> Tensor:
        each = len(classes) - self.missing
        if self.missing < 0 or each < 1:
            raise UserError(
                f"missing must be between 0 and {len(classes) - 1} for "
                f"{counted(len(classes), 'class', 'classes')}, "
                f"found {self.missing}"
            )
        if self.one_to_one:
            if each != 1 or len(clients) != len(classes):
                raise UserError(
                    f"one_to_one needs one annotated class per client and as many clients as "
                    f"classes; found {each} per client, {counted(len(clients), 'client')} and "
                    f"{counted(len(classes), 'class', 'classes')}; turn it off or change "
                    "missing and clients"
                )
            return torch.eye(len(classes), dtype=torch.bool)
        generator = np.random.default_rng(seed_for(seed, "annotation", "missing"))
        counts = {"clients": len(clients), "classes": len(classes), "each": each}
        assigned = (
            assign_evenly(generator, **counts)[0]
            if self.balanced
            else assign_with_owners(generator, **counts)
        )
        return torch.from_numpy(assigned)


def assign_with_owners(
    generator: np.random.Generator, *, clients: int, classes: int, each: int
) -> Mask:
    """(K, C): assign every class to one client, then fill up each client at random."""
    check_class_counts(clients=clients, classes=classes, each=each)
    mask = np.zeros((clients, classes), dtype=np.bool_)
    mask[np.arange(classes) % clients, generator.permutation(classes)] = True
    for row in mask:
        rest = np.flatnonzero(~row)
        row[generator.choice(rest, size=each - int(row.sum()), replace=False)] = True
    return mask


def assign_evenly(
    generator: np.random.Generator, *, clients: int, classes: int, each: int, draws: int = 1
) -> Mask:
    """(draws, K, C): within a draw, the numbers of clients per class differ by at most 1."""
    check_class_counts(clients=clients, classes=classes, each=each)
    client_counts = np.zeros((draws, classes), dtype=np.int64)
    masks = np.zeros((draws, clients, classes), dtype=np.bool_)
    for client in range(clients):
        # The classes with the fewest clients come first, in random order among equals.
        order = np.argsort(
            client_counts + generator.random(client_counts.shape), axis=1, kind="stable"
        )
        np.put_along_axis(masks[:, client], order[:, :each], True, axis=1)
        client_counts += masks[:, client]
    return masks


def check_class_counts(*, clients: int, classes: int, each: int) -> None:
    """Raise a ``UserError`` if ``each`` classes per client cannot cover all classes."""
    if not 1 <= each <= classes:
        raise UserError(f"a client can have between 1 and {classes} of the classes, found {each}")
    if clients * each < classes:
        raise UserError(
            f"{clients} clients with {each} classes each reach at most {clients * each} of the "
            f"{classes} classes, so some class would have no client; use more clients, or at "
            f"least {-(-classes // clients)} classes per client"
        )
