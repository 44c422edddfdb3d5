"""FedNCA-ML's losses on the toy of the method card."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from torch import Tensor, nn, tensor

from fedquilt.methods.fednca_ml import FedNCAML
from fedquilt.models.heads.layers.class_directions import ClassDirections
from fedquilt.models.heads.layers.class_vectors import ClassVectors
from fedquilt.models.heads.layers.etf import simplex_etf
from fedquilt.models.network import Output

OFF = {"rejection": 0.0, "compaction": 0.0}
# C = d = 3: features e1, 2 e2 and -e3, of which only class 0 is present
FOUND = tensor([[[1.0, 0, 0], [0, 2, 0], [0, 0, -1]]], dtype=torch.float64)
LABELS = tensor([[1.0, 0.0, 0.0]])
KNOWN = torch.ones(1, 3, dtype=torch.bool)
BCE, NEG, POS = 0.847819, 0.641988, 0.462265
HINGE, COSINE = 0.837247, 5.04e-8


class GivenFeatures(nn.Module):
    """A network whose features per class are given, (B, C, d)."""

    def __init__(self, found: Tensor, scale: float | None = None) -> None:
        super().__init__()
        self.head = nn.Module()
        shape = (found.shape[1], found.shape[2])
        self.head.classifier = ClassDirections(ClassVectors(), shape, 0, scale=scale).double()
        self.found = found

    def forward(self, images: Tensor) -> Output:
        logits = self.head.classifier.own_scores(self.found)
        return Output(self.found.mean(1), logits, self.found)


def _loss(
    method: FedNCAML,
    labels: Tensor = LABELS,
    known: Tensor = KNOWN,
    found: Tensor = FOUND,
    scale: float | None = None,
) -> float:
    local = client_of(method, holding(labels, known), torch.zeros(1, 3))
    local.model = GivenFeatures(found, scale)  # type: ignore[assignment]
    return method.loss(local, batch_of(labels, known)).item()


def _share(part: str, labels: Tensor = LABELS, found: Tensor = FOUND, **settings: object) -> float:
    """One regulariser of the toy at strength 1."""
    method = FedNCAML(**{**OFF, part: 1.0, **settings})  # type: ignore[arg-type]
    known = torch.ones_like(labels, dtype=torch.bool)
    whole, plain = (_loss(each, labels, known, found) for each in (method, FedNCAML(**OFF)))
    return whole - plain


def test_the_toy_in_the_papers_form() -> None:
    assert _loss(FedNCAML(**OFF)) == pytest.approx(BCE, abs=1e-6)
    assert _share("rejection") == pytest.approx(NEG, abs=1e-6)
    assert _share("compaction") == pytest.approx(POS, abs=1e-6)
    whole = _loss(FedNCAML(rejection=0.01, compaction=1.0))
    assert whole == pytest.approx(BCE + 0.01 * NEG + POS, abs=1e-6)


def test_the_toy_in_the_authors_form() -> None:
    assert _share("rejection", rejection_form="hinge") == pytest.approx(HINGE, abs=1e-6)
    # One positive: only the likeliest negative, class 1, 0.83658 - 0.3
    assert _share("rejection", rejection_form="hinge-top") == pytest.approx(0.53658, abs=1e-5)
    assert _share("compaction", compaction_form="cosine") == pytest.approx(COSINE, rel=1e-3)
    summed = _loss(FedNCAML(class_reduction="sum", **OFF))
    assert summed == pytest.approx(3 * BCE, abs=3e-6)


def test_several_positives_are_averaged_by_the_paper_and_summed_by_the_authors() -> None:
    labels = tensor([[1.0, 1.0, 0.0]])
    # The second feature is twice as long: its softmax is steeper, its cosines are the first's.
    gap = -math.sqrt(3 / 2)  # of a class's own score, 0.816497, to the others', -0.408248
    first, second = (math.log1p(2 * math.exp(length * gap)) for length in (1, 2))
    assert first == pytest.approx(POS, abs=1e-6)
    assert _share("compaction", labels) == pytest.approx((first + second) / 2, abs=1e-6)
    cosine = _share("compaction", labels, compaction_form="cosine")
    assert cosine == pytest.approx(2 * COSINE, rel=1e-3)


def test_as_many_negatives_are_rejected_as_the_batch_has_positives() -> None:
    # Two positives in the first image, none in the second: of its three negatives and the first
    # image's one, those at 0.83658 and 0.69349. A sum per image, a mean over two images.
    labels = tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    twice = FOUND.repeat(2, 1, 1)
    top = _share("rejection", labels, twice, rejection_form="hinge-top")
    assert top == pytest.approx((0.53658 + 0.39349) / 2, abs=1e-5)


def test_strengths_of_the_card() -> None:
    method = FedNCAML()
    assert (method.rejection, method.compaction, method.rejection_threshold) == (0.01, 1.0, 0.3)
    assert method.temperature == 0.07


def test_scale_is_part_of_the_scores() -> None:
    # softplus of -10 a, 20 a and -10 a, with a = 0.816497, for the logits 10 a, 20 a, -10 a
    scores = 10 * FOUND @ simplex_etf(3, 3).double().T
    expected = nn.functional.binary_cross_entropy_with_logits(
        scores.diagonal(dim1=1, dim2=2), LABELS.double()
    )
    assert _loss(FedNCAML(**OFF), scale=10.0) == pytest.approx(expected.item(), abs=1e-6)
    cosines = FedNCAML(rejection=0.0, compaction_form="cosine")
    assert _loss(cosines, scale=10.0) == pytest.approx(expected.item(), abs=1e-6)


def test_unannotated_entries_are_in_none_of_the_losses() -> None:
    known = tensor([[True, True, False]])
    method = FedNCAML(rejection=1.0, compaction=1.0)
    # Left: class 0 present, -log 0.69349; class 1 absent, -log(1 - 0.83658), which is rejected by
    # the two others with -log(1 - 0.30651) each. With a = sqrt(2/3) these are softplus of:
    a = math.sqrt(2 / 3)
    present, absent, rejected = (math.log1p(math.exp(z)) for z in (-a, 2 * a, -a))
    expected = (present + absent) / 2 + rejected + POS
    assert _loss(method, known=known) == pytest.approx(expected, abs=2e-6)
    for garbage in (1.0, 255.0):
        hidden = torch.where(known, LABELS, tensor(garbage))
        assert _loss(method, labels=hidden, known=known) == _loss(method, known=known)


def test_images_without_positives_or_negatives() -> None:
    absent, present = torch.zeros(1, 3), torch.ones(1, 3)
    compact, reject = FedNCAML(rejection=0.0), FedNCAML(compaction=0.0, rejection=1.0)
    plain = FedNCAML(**OFF)
    assert _loss(compact, labels=absent) == _loss(plain, labels=absent)
    assert _loss(reject, labels=present) == _loss(plain, labels=present)
    top = replace(reject, rejection_form="hinge-top")  # no positive: no negative is chosen
    assert _loss(top, labels=absent) == _loss(plain, labels=absent)
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert _loss(FedNCAML(), known=nothing) == 0.0


def test_a_threshold_of_one_is_no_rejection() -> None:
    assert _share("rejection", rejection_threshold=1.0) == 0.0
