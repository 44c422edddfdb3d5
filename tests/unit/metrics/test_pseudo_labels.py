"""Pseudo-labels and how many of them are correct, counted by hand."""

from __future__ import annotations

import torch
from torch import Tensor, tensor

from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.metrics.pseudo_labels import PseudoLabelAudit

TRUTH = tensor([[1, 0], [1, 1], [0, 1], [0, 0], [1, 1]], dtype=torch.uint8)


def audit(known_truth: Tensor | None = None) -> PseudoLabelAudit:
    """Client x holds images 3, 0 and 1, client y holds 2 and 4; each annotates one class."""
    dataset = MultiLabelDataset(
        images=torch.zeros(5, 1, 1, 1, dtype=torch.uint8),
        labels=TRUTH,
        known=torch.ones(5, 2, dtype=torch.bool) if known_truth is None else known_truth,
        classes=("one", "two"),
        ids=tuple("abcde"),
    )
    clients = {}
    for name, rows, column in (("x", [3, 0, 1], 1), ("y", [2, 4], 0)):
        known = torch.zeros(len(rows), 2, dtype=torch.bool)
        known[:, column] = True
        clients[name] = ClientData(
            name, dataset.images, tensor(rows), torch.where(known, TRUTH[rows], 0), known
        )
    return PseudoLabelAudit(dataset, clients)


def tags(values: list[list[int]]) -> Tensor:
    return tensor(values, dtype=torch.int8)


def test_a_method_without_pseudo_labels_has_no_summary():
    empty = audit()
    assert empty.summary() is None
    empty.record("x", None)
    assert empty.summary() is None


def test_counts_by_hand():
    counted = audit()
    # Class one is hidden from x, where the truth is 0, 1, 1; it fills in 1, 1 and leaves one open.
    counted.record("x", tags([[1, -1], [1, -1], [-1, -1]]))
    # Class two is hidden from y, where the truth is 1, 1; it fills in 0 and 1.
    counted.record("y", tags([[-1, 0], [-1, 1]]))
    assert counted.summary() == {
        "one": {
            "positives": 2,
            "negatives": 0,
            "positive_precision": 0.5,  # image 0 is correct, image 3 is wrong
            "positive_recall": 0.5,  # image 0 of images 0 and 1
            "negative_precision": None,  # no 0 was filled in
            "negative_recall": 0.0,  # image 3 is missed
        },
        "two": {
            "positives": 1,
            "negatives": 1,
            "positive_precision": 1.0,
            "positive_recall": 0.5,
            "negative_precision": 0.0,
            "negative_recall": None,  # there is no hidden 0
        },
    }


def test_the_latest_state_of_a_client_counts():
    counted = audit()
    counted.record("y", tags([[-1, 0], [-1, 1]]))
    counted.record("y", tags([[-1, 1], [-1, 1]]))
    assert counted.summary()["two"]["positives"] == 2
    assert counted.summary()["two"]["negatives"] == 0


def test_clients_without_a_record_do_not_count():
    counted = audit()
    counted.record("y", tags([[-1, 1], [-1, 1]]))
    assert counted.summary()["one"]["positive_recall"] is None
    assert counted.summary()["two"]["positive_recall"] == 1.0


def test_labels_unknown_to_the_data_set_are_counted_but_not_scored():
    known = torch.ones(5, 2, dtype=torch.bool)
    known[4, 1] = False  # missing in the data set
    counted = audit(known)
    counted.record("y", tags([[-1, 1], [-1, 0]]))
    two = counted.summary()["two"]
    assert (two["positives"], two["negatives"]) == (1, 1)
    assert (two["positive_precision"], two["positive_recall"]) == (1.0, 1.0)
    assert (two["negative_precision"], two["negative_recall"]) == (None, None)


def test_the_order_of_records_does_not_matter():
    one, two = audit(), audit()
    reports = {"x": tags([[1, -1], [1, -1], [0, -1]]), "y": tags([[-1, 0], [-1, 1]])}
    for name, report in reports.items():
        one.record(name, report)
    for name, report in reversed(reports.items()):
        two.record(name, report)
    assert one.summary() == two.summary()
