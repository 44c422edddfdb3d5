"""Intervals of a run's models for result.json: on all test images, and at each site."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedquilt.metrics import nan_to_none
from fedquilt.metrics.across_sites import SiteAuc, auc_over_sites
from fedquilt.metrics.class_intervals import auc_intervals, mean_intervals, model_intervals
from fedquilt.metrics.evaluation import Evaluation, called_present
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.runs.assessment import NO_THRESHOLDS
from fedquilt.runs.scores import Scores


def scored_images(scores: Scores) -> LabelledImages:
    """Labels, mask and patients of scores, as the statistics take them."""
    return LabelledImages.of(scores.labels, scores.known, scores.patients, scores.sites)


def result_intervals(
    scores: Scores,
    settings: Evaluation,
    seed: int,
    thresholds: Mapping[str, Mapping[str, Any]] = NO_THRESHOLDS,
) -> dict[str, Any]:
    """Return ``intervals`` by model and, of several models, ``mean_intervals`` of their mean AUC.

    ``thresholds`` are those of each model's classes, where they differ from the recipe's one.
    Undefined numbers are None.
    """
    images, classes = scored_images(scores), scores.classes
    found: dict[str, Any] = {"intervals": {}}
    for name, logits in scores.logits.items():
        fitted = thresholds.get(name, {})
        predicted = called_present(torch.from_numpy(logits), settings, classes, fitted).numpy()
        found["intervals"][name] = model_intervals(images, logits, predicted, classes, seed=seed)
    if len(scores.logits) > 1:
        found["mean_intervals"] = mean_intervals(images, [*scores.logits.values()], classes)
    plain: dict[str, Any] = nan_to_none(found)
    return plain


def site_intervals(
    scores: Scores, sites: Mapping[str, Tensor], model_of: Mapping[str, str]
) -> dict[str, Any]:
    """Return the AUC's intervals at each site, and its mean over sites with random effects.

    Args:
        scores: of all test images.
        sites: the test images of each site.
        model_of: the model that is judged at each site.
    """
    at_sites, influences = {}, []
    for site, model in model_of.items():
        rows = sites[site].numpy()
        patients = None if scores.patients is None else scores.patients[rows]
        images = LabelledImages.of(scores.labels[rows], scores.known[rows], patients)
        own = list(images.influences([scores.logits[model][rows]]))
        at_sites[site] = auc_intervals(images, scores.classes, own)
        influences.append(own)
    over_sites = {
        name: auc_over_sites(
            [SiteAuc(each.auc, each.variance, each.size.positives) for each in of_class]
        )
        for name, of_class in zip(scores.classes, zip(*influences, strict=True))
    }
    plain: dict[str, Any] = nan_to_none({"intervals": at_sites, "auc_over_sites": over_sites})
    return plain
