"""PseudoLabelAudit: how many pseudo-labels clients have, and how many are correct.

It holds labels that clients of a simulation have not annotated. Methods have no access to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.processes import Processes
from fedquilt.core.tree import as_branch, from_branch
from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import MultiLabelDataset


class PseudoLabelAudit:
    def __init__(self, dataset: MultiLabelDataset, clients: Mapping[str, ClientData]) -> None:
        self._classes, self._dataset, self._clients = dataset.classes, dataset, clients
        self._truths: dict[str, tuple[Tensor, Tensor]] = {}  # truth and hidden, once recorded
        self._latest: dict[str, Tensor] = {}
        self._unshared: dict[str, Tensor] = {}  # recorded since the last call of share()

    def record(self, client: str, pseudo_labels: Tensor | None) -> None:
        if pseudo_labels is not None:
            self._latest[client] = self._unshared[client] = pseudo_labels.cpu()

    def share(self, processes: Processes) -> None:
        """Learn the pseudo-labels that the other processes' clients have now."""
        mine = {as_branch(client): labels for client, labels in self._unshared.items()}
        self._unshared = {}
        for theirs in processes.share_trees(mine):
            self._latest |= {from_branch(branch): labels for branch, labels in theirs.items()}

    def summary(self) -> dict[str, dict[str, Any]] | None:
        """Per class, the pseudo-labels and their precision and recall on hidden labels."""
        if not self._latest:
            return None
        return {name: self._class_summary(column) for column, name in enumerate(self._classes)}

    def _truth_of(self, client: str) -> tuple[Tensor, Tensor]:
        """Return the labels, and which entries the data set knows and the client does not.

        Copied for clients that have pseudo-labels only: of many clients and classes it is much.
        """
        if client not in self._truths:
            data = self._clients[client]
            hidden = self._dataset.known[data.indices] & ~data.known
            self._truths[client] = self._dataset.labels[data.indices], hidden
        return self._truths[client]

    def _class_summary(self, column: int) -> dict[str, Any]:
        names = sorted(self._latest)
        labels = torch.cat([self._latest[name][:, column] for name in names])
        truth, hidden = (
            torch.cat([part[:, column] for part in parts])
            for parts in zip(*(self._truth_of(name) for name in names))
        )
        positive, negative = labels == 1, labels == 0
        return {
            "positives": int(positive.sum()),
            "negatives": int(negative.sum()),
            "positive_precision": _share(positive & hidden, truth == 1),
            "positive_recall": _share(hidden & (truth == 1), positive),
            "negative_precision": _share(negative & hidden, truth == 0),
            "negative_recall": _share(hidden & (truth == 0), negative),
        }


def _share(among: Tensor, correct: Tensor) -> float | None:
    """Share of ``among`` that is ``correct``; None if ``among`` is empty."""
    count = int(among.sum())
    return int((among & correct).sum()) / count if count else None
