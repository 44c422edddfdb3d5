"""LabelledImages: labels, mask and patients of test images, as statistics per patient need them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedquilt.metrics.placements import Floats, Influence, Integers, Mask, influence, mean_influence


class ClassEntries(NamedTuple):
    """The known entries of one class."""

    rows: npt.NDArray[np.intp]  # the images
    positive: Mask  # of each of them
    patients: Integers


@dataclass(frozen=True, eq=False)
class LabelledImages:
    """Labels (N, C), meaningful only where ``known``, and the patient and site of each image."""

    labels: npt.NDArray[np.uint8]
    known: Mask
    patients: Integers  # (N,) numbered from 0
    sites: Integers | None = None  # (N,) numbered from 0
    unit: str = "patient"  # or "image", where the data do not tell patients apart

    @classmethod
    def of(
        cls,
        labels: npt.NDArray[np.uint8],
        known: Mask,
        patients: Integers | None = None,
        sites: Sequence[str] | None = None,
    ) -> LabelledImages:
        """Number the patients of these images; without patients every image is its own."""
        places = None if sites is None else np.unique(np.array(sites), return_inverse=True)[1]
        if patients is None:
            return cls(labels, known, np.arange(len(labels)), places, "image")
        return cls(labels, known, np.unique(patients, return_inverse=True)[1], places)

    @property
    def patient_count(self) -> int:
        return int(self.patients.max()) + 1 if len(self.patients) else 0

    def of_class(self, column: int) -> ClassEntries:
        rows = np.flatnonzero(self.known[:, column])
        return ClassEntries(rows, self.labels[rows, column] == 1, self.patients[rows])

    def influences(self, models: Sequence[npt.NDArray[np.floating]]) -> Iterator[Influence]:
        """Yield the influence per class, of one model's scores (N, C) or of the models' mean."""
        count = self.patient_count
        for column in range(self.labels.shape[1]):
            entries = self.of_class(column)
            yield mean_influence(
                [
                    influence(
                        scores[entries.rows, column], entries.positive, entries.patients, count
                    )
                    for scores in models
                ]
            )

    def sums(self, entries: ClassEntries, counted: Mask) -> Floats:
        """How many of a class's entries are counted, of each patient (P,)."""
        kept = entries.patients[counted]
        return np.bincount(kept, minlength=self.patient_count).astype(np.float64)

    def site_of_patients(self) -> Integers | None:
        """The site of each patient, that of the last image if there are several."""
        if self.sites is None:
            return None
        sites = np.zeros(self.patient_count, dtype=np.int64)
        sites[self.patients] = self.sites
        return sites
