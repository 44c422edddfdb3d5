"""FedALC (IEEE TNNLS, arXiv 2404.15598): class rows arranged by label correlation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather, Update
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.data.client_data import ClientData
from fedquilt.data.co_occurrence import Correlation, coded_positives, correlation_of, joint_counts
from fedquilt.methods.fedaws import FedAwS
from fedquilt.training.activity import Activity, RunSize
from fedquilt.training.method import State
from fedquilt.training.own_rows import ROWS
from fedquilt.training.provenance import Provenance
from fedquilt.training.task import Task

LONG = 2_000  # gradient steps, enough for rows to converge


@dataclass(frozen=True, kw_only=True)
class FedALC(FedAwS):
    """FedAwS in which the rows of classes that often share an image are kept close.

    Before the first round, every client sends a keyed hash of each image with a positive, and its
    positive classes. Equal hashes from two clients are one image with both labels. From these
    counts the server computes how correlated two classes are. It then pulls the rows of correlated
    classes together while it pushes others apart. The hashes show the server which clients hold
    the same images, but not which images these are.

    A reconstruction: the exact form of the paper's regulariser could not be verified. Ours is, over
    pairs, r d^2 + (1 - r) max(0, nu - d)^2; without correlations it is FedAwS. The variant
    ``fixed`` arranges the rows once, before training. Clients never send rows, but receive their
    own with every broadcast.
    """

    spread_steps: int = 5  # gradient steps that spread the rows, after every round
    correlation: Correlation = "overlap"  # r: shared images over the rarer class's, or mean share

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {"fixed": {"fixed_rows": True}}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nearest is not None:
            raise UserError(
                "fedalc arranges all pairs of rows by their correlation, not the nearest ones; "
                f"leave out method.nearest, found {self.nearest}"
            )

    def survey(self, data: ClientData) -> Update:
        return {**super().survey(data), "codes": Gather(coded_positives(data), any_length=True)}

    @property
    def provenance(self) -> Mapping[str, Provenance]:
        codes: Provenance = {"codes": "any positive", "positives": "positives"}
        return {**super().provenance, "codes": codes}

    def server_activity(self, server: State, size: RunSize) -> Activity:
        pairs = (server["together"].triu(1) > 0).sum()
        return {"pairs of correlated classes": int(pairs)}

    def why_idle(self, what: str, size: RunSize) -> str:
        return (
            "no image has annotated positives of two classes, at one client or at several, so "
            "this is FedAwS with other settings"
        )

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        counts = joint_counts(survey.each("codes").values(), task.class_count)
        together = correlation_of(counts, self.correlation)
        server = super().init_server(weights, task, survey) | {"together": together}
        if self.fixed_rows:
            rate = 1 / (4 * task.class_count)  # small enough for the penalty to fall in every step
            rows = self.arranged(weights[ROWS], server, rate, LONG)
            server["weights"] = {**weights, ROWS: rows}
        return server
