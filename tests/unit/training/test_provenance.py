"""The images and patients that a value is computed from."""

from __future__ import annotations

import pytest
import torch
from support.few_patients import site
from torch import tensor

from fedquilt.training.provenance import KNOWN_GROUPS, images_of, patients_of

# Images in each group, by the labels of the site: see tests/few_patients.py.
IMAGES = {
    "images": [8],
    "any positive": [5],
    "every class": [8, 8, 0],
    "annotated": [[8], [8], [0]],
    "annotated or not": [[8, 0], [8, 0], [0, 8]],
    "positives": [[5], [1], [0]],
    "sides": [[3, 5], [7, 1], [0, 0]],
    "positives or pseudo-labels": [[5], [1], [2]],
}
# Images 0 to 2 are of one patient.
PATIENTS = {
    "images": [6],
    "any positive": [3],
    "every class": [6, 6, 0],
    "annotated": [[6], [6], [0]],
    "annotated or not": [[6, 0], [6, 0], [0, 6]],
    "positives": [[3], [1], [0]],
    "sides": [[3, 3], [5, 1], [0, 0]],
    "positives or pseudo-labels": [[3], [1], [1]],
}


def filled_in() -> torch.Tensor:
    """Class 2 of the first two images; what stands where a label is known does not count."""
    tags = torch.full((8, 3), -1, dtype=torch.int8)
    tags[:2, 2] = 1
    tags[:, 1] = 1
    return tags


@pytest.mark.parametrize("rule", KNOWN_GROUPS)
def test_images_and_patients_are_counted(rule):
    for has_patients, counts in ((False, IMAGES), (True, PATIENTS)):
        data = site(patients=has_patients)
        people = patients_of(images_of(rule, data, filled_in()), data)
        assert people.tolist() == counts[rule]


def test_of_numbers_of_images_the_fewest_patients_are_counted():
    numbers = tensor([[6.0], [2.0]])
    assert patients_of(numbers, site()).tolist() == [[6.0], [2.0]]
    # The largest patient has 3 images, so 6 images are of 2 patients at least.
    least = patients_of(numbers, site(patients=True))
    assert least.flatten().tolist() == pytest.approx([2.0, 2 / 3])
