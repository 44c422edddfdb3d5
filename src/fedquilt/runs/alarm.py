"""Alarm: stops a run when a round's model has become far worse at a class than an earlier one.

It does not say which site is to blame, and it takes nobody's update away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fedquilt.core.errors import UserError


class Alarm:
    """Compares every judged round with the best AUC of each class so far.

    Args:
        fall: the largest fall that is accepted; None: any.
        before: the records of earlier rounds.
    """

    def __init__(self, fall: float | None, before: Iterable[Mapping[str, Any]]) -> None:
        self._fall = fall
        self._best: dict[str, tuple[float, int]] = {}  # by class: AUC and round
        for record in before:
            self._keep(record)

    def check(self, record: Mapping[str, Any]) -> None:
        """Raise UserError if a class has fallen too far; the round must then not be kept."""
        for name, auc in _aucs(record).items():
            best, number = self._best.get(name, (0.0, 0))
            if self._fall is not None and best - auc > self._fall:
                raise UserError(
                    f"alarm in round {record['round']}: the AUC of {name} on held-out images fell "
                    f"to {auc:.3f} from {best:.3f} in round {number}, and robust.alarm = "
                    f"{self._fall:g}; this round is not kept: look at the sites' updates in it, "
                    "and leave a site out or raise robust.alarm to go on"
                )
        self._keep(record)

    def _keep(self, record: Mapping[str, Any]) -> None:
        for name, auc in _aucs(record).items():
            if auc > self._best.get(name, (-1.0, 0))[0]:
                self._best[name] = (auc, record["round"])


def _aucs(record: Mapping[str, Any]) -> dict[str, float]:
    """The AUC of each class in a record, of its validation or else its test images."""
    found = (record.get("validation") or {}).get("per_class_auc") or record.get("per_class_auc")
    return {name: auc for name, auc in (found or {}).items() if auc is not None}
