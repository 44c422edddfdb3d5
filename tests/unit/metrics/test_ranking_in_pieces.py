"""Ranking in pieces that fit into a bound of memory gives what ranking at once gives."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.metrics import score
from fedquilt.metrics.entries import Entries, entries_by_classes, read_entries
from fedquilt.metrics.ranking import Curve, RankingMetrics, rank_classes, rank_together

IMAGES, CLASSES = 3000, 25
ROOM = 10_000  # entries at once, of 75,000


def made(kind: str, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(IMAGES, CLASSES, generator=generator)
    if kind == "tied":  # a third is one number, and the rest has few different ones
        scores = (scores * 8).floor() / 8
        scores[torch.rand(scores.shape, generator=generator) < 1 / 3] = 0.3
    if kind == "one score":
        scores = torch.full_like(scores, 0.5)
    if kind == "two classes of scores":  # each class of images has scores of its own
        scores = scores / 100 + torch.arange(CLASSES) / CLASSES
    labels = (torch.rand(scores.shape, generator=generator) < 0.1).to(torch.uint8)
    known = torch.rand(scores.shape, generator=generator) < 0.9
    return scores.to(dtype), labels, known


@pytest.mark.parametrize("kind", ["distinct", "tied", "one score", "two classes of scores"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_pieces_agree_with_scikit_learn(kind, dtype):
    scores, labels, known = made(kind, dtype)
    kept = known.numpy()
    values, truth = scores.double().numpy()[kept], labels.numpy()[kept]
    together = rank_together(scores, labels, known, ROOM)
    assert together.auc.item() == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
    assert together.ap.item() == pytest.approx(average_precision_score(truth, values), abs=1e-12)
    pieces = [rank_classes(each) for _, each in entries_by_classes(scores, labels, known, ROOM)]
    assert len(pieces) > 5
    classes, whole = (
        RankingMetrics(*map(torch.cat, zip(*pieces))),
        rank_classes(read_entries(scores, labels, known)),
    )
    assert torch.equal(classes.auc, whole.auc)  # to the bit: a class is never divided
    assert torch.equal(classes.ap, whole.ap)
    at_once = rank_together(scores, labels, known, scores.numel())
    assert together.auc.item() == at_once.auc.item()  # counts are integers
    column = known[:, 3].numpy()
    expected = roc_auc_score(labels[:, 3].numpy()[column], scores.double().numpy()[column, 3])
    assert classes.auc[3].item() == pytest.approx(expected, abs=1e-12)


def test_the_sign_of_zero_is_no_difference():
    scores = torch.tensor([[0.0], [-0.0]])
    positive = torch.tensor([[True], [False]])
    found = rank_classes(Entries(scores, positive, ~positive))
    assert found.auc.item() == 0.5


def test_a_report_hardly_depends_on_its_memory():
    scores, labels, known = made("tied")
    names = [f"class {number}" for number in range(CLASSES)]
    small = score(scores, labels, known, names, memory_mb=1)
    large = score(scores, labels, known, names)
    assert small.per_class == large.per_class
    assert small.averages == pytest.approx(large.averages, abs=1e-12)


def test_no_more_is_sorted_at_once_than_fits(monkeypatch):
    scores, labels, known = made("two classes of scores")
    sizes: list[int] = []
    add = Curve.add

    def noted(curve: Curve, true: np.ndarray, false: np.ndarray) -> None:
        sizes.append(len(true) + len(false))
        add(curve, true, false)

    monkeypatch.setattr(Curve, "add", noted)
    rank_together(scores, labels, known, ROOM)
    assert len(sizes) > 5
    assert sum(sizes) == known.sum()
    assert max(sizes) <= ROOM


@pytest.mark.slow
def test_score_takes_no_more_memory_than_its_setting():
    """In a process of its own, because its peak is all that the system tells."""
    code = """
import resource, torch
from fedquilt.metrics import score
scores = torch.rand(20_000, 800)
labels = (scores < 0.3).to(torch.uint8)
known = torch.ones(20_000, 800, dtype=torch.bool)
names = [str(number) for number in range(800)]
score(scores[:100], labels[:100], known[:100], names)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
score(scores, labels, known, names, memory_mb=64)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert float(found.stdout) < 64


def test_decisions_by_the_largest_score_do_not_depend_on_pieces():
    scores, labels, known = made("distinct")
    names = [f"class {number}" for number in range(CLASSES)]
    small, large = (
        score(scores, labels, known, names, threshold="largest", memory_mb=memory)
        for memory in (1, 256)
    )
    assert small.per_class == large.per_class
    assert small.averages["subset_accuracy"] == large.averages["subset_accuracy"]
    winner = scores.argmax(1, keepdim=True)
    right = int((known.gather(1, winner) & (labels.gather(1, winner) == 1)).sum())
    shares = zip(small.per_class["recall"], small.per_class["positives"])
    assert sum(recall * positives for recall, positives in shares) == pytest.approx(right)


def test_a_refusal_counts_the_entries_of_all_pieces():
    scores, labels, known = made("distinct")
    labels[7, 20:] = 3
    known[7, 20:] = True
    names = [f"class {number}" for number in range(CLASSES)]
    with pytest.raises(UserError, match=r"found 3 in row 7, column 20; 5 such entries"):
        score(scores, labels, known, names, memory_mb=1)
