"""Validation: the part of each client's images that chooses the round and is not trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation, Holding
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.splits import draw_validation

KEPT_POSITIVES = 10  # patients: a client with fewer positives of a class trains on all of them

ChosenBy: TypeAlias = Literal["site_auc", "loss"]


@dataclass(frozen=True, kw_only=True)
class Validation:
    """How large the validation part is, and how it chooses the round whose model is served.

    ``site_auc`` is the mean over classes of the AUC within sites, weighted by each site's pairs of
    a positive and a negative. Pairs across sites are missing, so it is not the pooled AUC.
    """

    share: float = 0.0  # of each client's patients, or images without patient ids; 0: none drawn
    seed: int = 0  # for which patients; not the run's seed, so that all runs validate on the same
    metric: ChosenBy = "site_auc"  # chooses the round; "loss": the smallest cross-entropy
    patience: int | None = None  # validations without a gain before the run stops; none: never
    min_gain: float = 0.001  # a smaller gain in the metric does not count for patience

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise UserError(f"validation.share must be in 0..1, below 1; found {self.share}")
        if self.patience is not None and self.patience < 1:
            raise UserError(f"validation.patience must be at least 1, found {self.patience}")
        if self.min_gain < 0:
            raise UserError(f"validation.min_gain must be 0 or more, found {self.min_gain}")


def set_aside(
    allocation: Allocation,
    data: MultiLabelDataset,
    marked: Tensor | None,
    settings: Validation,
) -> Allocation:
    """Return the allocation with each client's validation images.

    Args:
        allocation: who holds which of the images of ``data``.
        data: the images that clients hold.
        marked: (N,) bool, the images that the data set sets aside; then none are drawn.
        settings: the share to draw otherwise. If all patients are needed for training, the
            result has no validation images.
    """
    facts: dict[str, Any] = {"from": "the data"}
    if marked is not None:
        chosen = marked
    elif settings.share > 0:
        chosen = _draw(allocation.holdings, data, settings)
        facts = {"from": "a draw", "share": settings.share, "seed": settings.seed}
    else:
        return allocation
    holdings = tuple(
        replace(holding, validation=chosen[holding.indices]) for holding in allocation.holdings
    )
    if not any(bool(holding.has_validation) for holding in holdings):
        return allocation
    _require_training_images(holdings)
    return Allocation(holdings, allocation.classes, {**allocation.protocol, "validation": facts})


def _require_training_images(holdings: Sequence[Holding]) -> None:
    for holding in holdings:
        if holding.validation is not None and bool(holding.validation.all()):
            raise UserError(
                f"all {len(holding.indices)} images of {holding.name!r} are marked for validation, "
                "so it has nothing to train on; mark fewer of them, or leave the client out"
            )


def _draw(holdings: Sequence[Holding], data: MultiLabelDataset, settings: Validation) -> Tensor:
    """(N,) bool: the drawn images; each client draws alone unless clients share patients.

    Then they draw together, so that no patient trains at one client and validates at another.
    """
    units = np.asarray(data.ids if data.groups is None else data.groups)
    owned = [np.unique(units[holding.indices.numpy()]) for holding in holdings]
    is_shared = len(np.unique(np.concatenate(owned))) < sum(map(len, owned))
    chosen = torch.zeros(len(data), dtype=torch.bool)
    for group in [holdings] if is_shared else [[holding] for holding in holdings]:
        rows, drawn = _draw_together(group, data, units, settings)
        chosen[rows] = torch.from_numpy(drawn)
    return chosen


def _draw_together(
    holdings: Sequence[Holding],
    data: MultiLabelDataset,
    units: NDArray[np.str_],
    settings: Validation,
) -> tuple[Tensor, NDArray[np.bool_]]:
    """Return the rows that these clients hold, and which of them are drawn."""
    rows = torch.cat([holding.indices for holding in holdings])
    positives = [_positives(holding, data) for holding in holdings]
    kept = [
        (each & is_rare(each, units[holding.indices.numpy()])).any(1)
        for holding, each in zip(holdings, positives)
    ]
    sizes = [len(holding.indices) for holding in holdings]
    drawn = draw_validation(
        units[rows.numpy()],
        np.concatenate(positives),
        np.concatenate(kept),
        settings.share,
        settings.seed,
        # also keep the clients' shares
        places=np.repeat(np.arange(len(sizes)), sizes) if len(sizes) > 1 else None,
    )
    return rows, drawn


def _positives(holding: Holding, data: MultiLabelDataset) -> NDArray[np.bool_]:
    """(n, C): the positives that the client has annotated."""
    found: NDArray[np.bool_] = ((data.labels[holding.indices] == 1) & holding.known).numpy()
    return found


def is_rare(positives: NDArray[np.bool_], units: NDArray[np.str_]) -> NDArray[np.bool_]:
    """(C,) bool: the classes with fewer than ``KEPT_POSITIVES`` positive patients."""
    patients = [len(set(compress(units.tolist(), column))) for column in positives.T.tolist()]
    return np.array(patients) < KEPT_POSITIVES
