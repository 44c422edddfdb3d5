"""FedAvg-PL: FedAvg with the partial loss, a baseline of the FedMLP paper (MICCAI 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedquilt.methods.fedavg import FedAvg


@dataclass(frozen=True, kw_only=True)
class FedAvgPL(FedAvg):
    """FedAvg whose loss contains annotated entries only; a blank label says nothing."""

    unannotated: Literal["negative", "skip"] = "skip"  # what the loss makes of a blank label
