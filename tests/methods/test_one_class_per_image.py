"""Images of one class each: softmax, cross-entropy and the largest class, by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.pixel_logits import make_batch, make_local
from support.tiny_runs import tiny_settings
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.registry import find
from fedquilt.losses.cross_entropy import labelled_cross_entropy
from fedquilt.methods import METHODS
from fedquilt.methods.fedfixmatch import FedFixMatch
from fedquilt.methods.fedrs import FedRS
from fedquilt.metrics import score
from fedquilt.models.heads.softmax import log_odds
from fedquilt.recipes.recipe import recipe_from
from fedquilt.training.averaging import WeightedAveraging

# Two images: the first is of class 0; the second's class is not among those the site identifies.
LABELS = tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
KNOWN = tensor([[True, True, False], [True, True, False]])
SHARES = tensor([[0.5, 0.25, 0.25], [0.02, 0.02, 0.96]])
LOGITS = log_odds(SHARES.log())
EXCLUSIVE = [
    *("centralised", "fedavg", "fedavg-pl", "fedcurv", "fedfixmatch", "fedprox", "fedrs"),
    *("fpsl", "fssl", "full-labels", "moon"),
]


def test_cross_entropy_is_the_mean_over_labelled_images():
    assert labelled_cross_entropy(LOGITS, LABELS, KNOWN).item() == pytest.approx(math.log(2))
    none = labelled_cross_entropy(LOGITS[1:], LABELS[1:], KNOWN[1:])
    assert none.item() == 0.0  # no labelled image


def test_fixmatch_gives_an_unlabelled_image_its_confident_class():
    method = FedFixMatch(one_class_per_image=True, threshold=0.95, positive_weight="none")
    local = make_local(method, KNOWN, LABELS)
    local.state = method.begin(local)
    batch = make_batch(local, LOGITS, LOGITS)  # pixels are logits: weak and strong view
    loss, state = method.step_loss(local, batch)
    # Supervised ln 2; the second image is of class 2 with 0.96, and class 2 is not annotated.
    assert loss.item() == pytest.approx(math.log(2) - math.log(0.96), rel=1e-5)
    assert int(state["filled_in"]) == 1
    unsure = replace(method, threshold=0.97)
    assert unsure.step_loss(local, batch)[0].item() == pytest.approx(math.log(2), rel=1e-5)


def test_fedrs_restricts_the_softmax():
    method = FedRS(one_class_per_image=True, alpha=0.5, positive_weight="none")
    local = make_local(method, KNOWN[:1], LABELS[:1])
    batch = make_batch(local, LOGITS[:1])
    # Class 2 is not annotated: its log share is halved, 0.25 becomes 0.5; 0.5 of 0.5 + 0.25 + 0.5.
    assert method.loss(local, batch).item() == pytest.approx(-math.log(0.5 / 1.25), rel=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_a_form_for_it_or_refuses_it(name: str):
    if not issubclass(find("method", METHODS, name), WeightedAveraging):
        return
    given = {"name": name, "one_class_per_image": True}
    settings = tiny_settings() | {"method": given}
    if name in EXCLUSIVE:
        recipe = recipe_from(settings)
        assert recipe.method.model_spec(recipe.model).head == "softmax"
    else:
        with pytest.raises(UserError, match="has no form for images of one class each"):
            recipe_from(settings)


def test_the_largest_class_is_predicted_whatever_the_threshold():
    # Truth 0, 1, 2, 2; predicted 0, 0 (a tie: the first), 2, 1.
    shares = tensor([[0.4, 0.3, 0.3], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7], [0.2, 0.5, 0.3]])
    labels = torch.eye(3)[[0, 1, 2, 2]]
    report = score(shares, labels, torch.ones(4, 3, dtype=torch.bool), "abc", threshold="largest")
    assert report.averages["subset_accuracy"] == 0.5
    # Recall 1, 0, 1/2; precision 1/2, 0, 1; F1 2/3, 0, 2/3.
    assert report.averages["class_recall"] == pytest.approx(0.5)
    assert report.averages["class_precision"] == pytest.approx(0.5)
    assert report.averages["macro_f1"] == pytest.approx(4 / 9)


def test_a_recipe_predicts_the_largest_class_if_it_says_so():
    plain = recipe_from(tiny_settings())
    chosen = recipe_from(tiny_settings() | {"evaluation": {"exclusive": True}})
    assert (plain.evaluation.rule, chosen.evaluation.rule) == (0.5, "largest")
    assert "exclusive" not in plain.to_dict()["evaluation"]
