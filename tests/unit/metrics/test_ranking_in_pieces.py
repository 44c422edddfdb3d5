"""Ranking in pieces that fit into a bound of memory gives what ranking at once gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from fedquilt.metrics import ranking, score
from fedquilt.metrics.entries import Entries, read_entries
from fedquilt.metrics.ranking import rank_classes, rank_together

IMAGES, CLASSES = 3000, 25  # 75,000 entries; a MiB is enough for 13,107


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
    entries = read_entries(scores, labels, known)
    kept = known.numpy()
    values, truth = scores.double().numpy()[kept], labels.numpy()[kept]
    together = rank_together(entries, memory_mb=1)
    assert together.auc.item() == pytest.approx(roc_auc_score(truth, values), abs=1e-12)
    assert together.ap.item() == pytest.approx(average_precision_score(truth, values), abs=1e-12)
    classes = rank_classes(entries, memory_mb=1)
    whole = rank_classes(entries)
    assert torch.equal(classes.auc, whole.auc)  # to the bit: a class is never divided
    assert torch.equal(classes.ap, whole.ap)
    assert together.auc.item() == rank_together(entries).auc.item()  # counts are integers
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
    curve = ranking.step_curve

    def noted(scores: np.ndarray, kinds: np.ndarray) -> ranking.StepCurve:
        sizes.append(scores.size)
        return curve(scores, kinds)

    monkeypatch.setattr(ranking, "step_curve", noted)
    entries = read_entries(scores, labels, known)
    ranking.rank_classes(entries, memory_mb=1)
    ranking.rank_together(entries, memory_mb=1)
    assert len(sizes) > 10
    assert max(sizes) <= 2**20 // ranking.ENTRY_BYTES
