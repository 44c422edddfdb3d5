"""Annotations as the user lists them, client by client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedquilt.data.annotations.annotation import Annotation
from fedquilt.errors import UserError, nearest


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
