"""An update with weight in a class that the site has not declared is refused."""

from __future__ import annotations

import pytest
import torch
from torch import tensor

from fedquilt.core.payload import Mean, Sum
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedlsm import FedLSM
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.methods.flag import FLAG
from fedquilt.methods.spherefed import SphereFed
from fedquilt.privacy.unannotated_rows import annotator_parts, check_unannotated_rows

DECLARED = tensor([True, False, True])
CLASSES = ("cyst", "stone", "tumour")


def head(*weights: float) -> Mean:
    return Mean({"rows": torch.ones(3, 2)}, tensor(weights))


def test_the_method_declares_the_parts_of_annotators():
    assert annotator_parts(FedAvg()) == ("annotators",)
    assert annotator_parts(FedAvg(head_rows="annotated")) == ("annotators", "head")
    assert annotator_parts(FLAG(head_rows="positives")) == ("annotators", "head")
    assert annotator_parts(FedMLP()) == ("annotators", "prototypes")
    # Head rows are weighted by pseudo-labels too; the annotators' weights are in spare_rows.
    assert "head" not in annotator_parts(FedLSM())
    assert "spare_rows" in annotator_parts(FedLSM())


def test_declared_classes_may_have_weight():
    method = FedAvg(head_rows="annotated")
    check_unannotated_rows(method, {"head": head(5.0, 0.0, 0.0)}, DECLARED, "site-7")


def test_an_undeclared_class_must_not_have_weight():
    method = FedAvg(head_rows="annotated")
    update = {"head": head(5.0, 1e-9, 0.0)}
    reason = r"'site-7', part 'head': it has weight in 1 class .* not annotate: 'stone'"
    with pytest.raises(RefusedUpdate, match=reason):
        check_unannotated_rows(method, update, DECLARED, "site-7", CLASSES)
    check_unannotated_rows(FedAvg(), update, DECLARED, "site-7")  # head rows of all clients count


def test_one_side_of_a_prototype_is_enough():
    weight = torch.zeros(3, 2)
    weight[1, 1] = 4.0
    update = {"prototypes": Mean(torch.zeros(3, 2, 5), weight)}
    with pytest.raises(RefusedUpdate, match="number 1"):
        check_unannotated_rows(FedMLP(), update, DECLARED, "site-7")


def test_a_sum_has_no_weight_so_its_values_count():
    squares, products = torch.zeros(3, 2, 2), torch.zeros(3, 2)
    squares[0], products[2, 1] = 1.0, -1.0
    update = {"squares": Sum(squares), "products": Sum(products)}
    check_unannotated_rows(SphereFed(), update, DECLARED, "site-7")
    squares[1, 0, 1] = 1e-9
    with pytest.raises(RefusedUpdate, match="part 'squares': it has weight in 1 class"):
        check_unannotated_rows(SphereFed(), update, DECLARED, "site-7")
