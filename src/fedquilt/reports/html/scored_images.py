"""What a run's scores per image add to its findings: patients, curves and calibration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fedquilt.core.errors import UserError
from fedquilt.metrics.calibration import Calibrator, calibrator_from
from fedquilt.reports.html.curves import Curves, curves_of
from fedquilt.reports.html.findings import Finding
from fedquilt.runs.scores import Scores, read_scores

GLOBAL = "global"
MAX_DETAILED = 200  # classes whose curves are drawn in full; with more, ROC curves only
MAX_POINTS, FEWER_POINTS = 60, 20  # of a curve, with few and with many classes


class ScoredImages:
    """The scores of a run's test images, if it holds any."""

    def __init__(self, run: Path, calibration: Mapping[str, Any]) -> None:
        self._run, self._calibration = run, calibration

    @cached_property
    def why_missing(self) -> str | None:
        """Why there are no curves, and how to get them; None if there are."""
        if isinstance(self._scores, UserError):
            return str(self._scores)
        if GLOBAL not in self._scores.logits:
            return "every client has its own model; curves are drawn of a global model only"
        return None

    @cached_property
    def _scores(self) -> Scores | UserError:
        try:
            return read_scores(self._run)
        except UserError as error:
            return error

    @property
    def counts(self) -> dict[str, int | None]:
        """The numbers of images and patients, if the run holds their scores."""
        scores = self._scores
        if isinstance(scores, UserError):
            return {}
        patients = None if scores.patients is None else len(np.unique(scores.patients))
        return {"images": len(scores), "patients": patients}

    def with_patients(self, findings: Sequence[Finding]) -> list[Finding]:
        """Add how many patients have and do not have each finding, if patients are known."""
        scores = self._scores
        if isinstance(scores, UserError) or scores.patients is None:
            return list(findings)
        return [
            replace(
                each,
                positive_patients=_patients(scores, each.place, 1),
                negative_patients=_patients(scores, each.place, 0),
            )
            if each.positive_patients is None
            else each
            for each in findings
        ]

    def curves(self) -> dict[int, Curves]:
        """Return the curves of every class, by its place."""
        scores = self._scores
        if isinstance(scores, UserError) or self.why_missing is not None:
            return {}
        count = len(scores.classes)
        is_short = count > MAX_DETAILED
        logits, most = scores.logits[GLOBAL], FEWER_POINTS if is_short else MAX_POINTS
        found = {}
        for place in range(count):
            known: Any = scores.known[:, place]
            positive = scores.labels[known, place] == 1
            found[place] = curves_of(
                logits[known, place],
                positive,
                most_points=most,
                is_short=is_short,
                calibrator=self._calibrator(scores.classes[place]),
            )
        return found

    def _calibrator(self, name: str) -> Calibrator | None:
        """Return what model.json holds for a class; None if it is not calibrated."""
        entry = self._calibration.get("classes", {}).get(name, {})
        return calibrator_from(entry) if entry and "fallback" not in entry else None


def _patients(scores: Scores, place: int, label: int) -> int:
    rows = scores.known[:, place] & (scores.labels[:, place] == label)
    patients = scores.patients
    return 0 if patients is None else len(np.unique(patients[rows]))
