"""The validation parts: T16 at two sites, the disclosure floor, and labels under the mask."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.t16 import PATIENTS, POSITIVE, S
from torch import Tensor

from fedquilt.core.payload import Update, weight_of
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.data.client_data import ClientData
from fedquilt.privacy.site_validation import (
    AUC_PART,
    LOSS_PART,
    expected_validation,
    validation_parts,
    validation_result,
)

SITES = torch.tensor([0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
LOGITS = torch.logit(torch.tensor(S, dtype=torch.float64))[:, None]


def site(rows: Tensor, name: str = "site", *, patients: bool = False) -> ClientData:
    return ClientData(
        name=name,
        images=torch.zeros(16, 1, 1, 1, dtype=torch.uint8),
        indices=rows,
        labels=torch.tensor(POSITIVE, dtype=torch.uint8)[rows][:, None],
        known=torch.ones(len(rows), 1, dtype=torch.bool),
        patients=torch.tensor(PATIENTS)[rows] if patients else None,
    )


def totals(*updates: Update) -> Totals:
    accumulator = Accumulator(expected_validation(1), len(updates))
    for number, update in enumerate(updates):
        accumulator.add(str(number), update)
    return accumulator.totals()


def parts_of(number: int) -> Update:
    rows = (number == SITES).nonzero().flatten()
    return validation_parts(LOGITS[rows], site(rows))


def test_auc_within_sites_is_weighted_by_pairs():
    first, second = parts_of(0), parts_of(1)
    assert first[AUC_PART].value.item() == 0.90625
    assert second[AUC_PART].value.item() == pytest.approx(0.916666667, abs=1e-9)
    assert [weight_of(each[AUC_PART]).item() for each in (first, second)] == [16, 12]
    found = validation_result(totals(first, second), ("x",))
    assert found["site_auc"] == pytest.approx(0.910714286, abs=1e-9)
    assert found["per_class_auc"] == {"x": found["site_auc"]}
    assert found["loss"] == pytest.approx(0.492333196, abs=1e-9)  # of all 16 images


def test_one_site_is_the_pooled_auc():
    found = validation_result(totals(validation_parts(LOGITS, site(torch.arange(16)))), ("x",))
    assert found["site_auc"] == pytest.approx(0.8333333333, abs=1e-9)


def test_a_class_below_the_floor_on_either_side_is_withheld():
    # T16 has 5 patients with the finding (0 1 2 3 4) and 6 without it (4 5 6 7 8 9).
    data = site(torch.arange(16), patients=True)
    for min_cell, is_sent in ((5, True), (6, False)):
        parts = validation_parts(LOGITS, data, min_cell)
        for part in (AUC_PART, LOSS_PART):
            assert (weight_of(parts[part]).item() > 0) is is_sent
            assert (parts[part].value.item() > 0) is is_sent
    nothing = validation_result(totals(validation_parts(LOGITS, data, 6)), ("x",))
    assert nothing == {"site_auc": None, "loss": None, "per_class_auc": {"x": None}}


def test_what_is_not_annotated_changes_nothing():
    data = site(torch.arange(16))
    known = data.known.clone()
    known[10:] = False
    masked = replace(data, known=known)
    garbage = replace(masked, labels=torch.where(known, data.labels, 7))
    scores = LOGITS.clone()
    scores[10:] = 99.0
    plain, other = validation_parts(LOGITS, masked), validation_parts(scores, garbage)
    for part in (AUC_PART, LOSS_PART):
        assert torch.equal(plain[part].value, other[part].value)
        assert torch.equal(weight_of(plain[part]), weight_of(other[part]))
