"""Thresholds and calibration of a run's models: fitted on validation, stored in ``model.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from fedquilt.core.atomic_files import write_json
from fedquilt.core.payload import Gather
from fedquilt.metrics import nan_to_none
from fedquilt.metrics.decision_quality import calibration_quality, threshold_quality
from fedquilt.metrics.decision_rules import DecisionRules
from fedquilt.metrics.evaluation import Evaluation, called_present
from fedquilt.metrics.fitting import (
    ClassSample,
    fallback,
    fit_calibration,
    fit_thresholds,
    given_threshold,
    given_thresholds,
    sample_of_scores,
)
from fedquilt.metrics.fitting_from_histograms import fit_from_histograms
from fedquilt.metrics.intervals import auc_interval
from fedquilt.metrics.labelled_images import LabelledImages
from fedquilt.privacy.score_histograms import cells_by_class, score_histograms
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.model_json import LAST
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.scores import Scores

NO_ROUNDS: Mapping[str, int] = MappingProxyType({})
NO_VALIDATION = "the run has no validation part"
NOT_FITTED = (
    "thresholds and calibration are not fitted: the run has no validation part (set "
    "validation.share, or mark images val in a split column); every class keeps the threshold "
    "{threshold:g}, and probabilities are not calibrated"
)

# Thresholds set by hand: for all classes, or by class (None: for all others).
Given: TypeAlias = float | Mapping[str, float] | Mapping[str | None, float] | None
Found = dict[str, Any]  # the keys "thresholds" and "calibration" of ``model.json``
NOTHING_FITTED: Mapping[str, Found] = MappingProxyType({})


def fit_decisions(
    settings: Evaluation,
    classes: Sequence[str],
    models: Sequence[str],
    scores: Scores | None,
    min_cell: int = 0,
    rounds: Mapping[str, int] = NO_ROUNDS,
) -> dict[str, Found]:
    """Return each model's thresholds and calibration; empty if the recipe asks for none.

    Args:
        settings: of the recipe.
        classes: of the run.
        models: names; ``global``, or clients that have their own model.
        scores: of the validation part, by these models; None: there is none.
        min_cell: with a disclosure floor a global model is fitted on what sites may send.
        rounds: of the models, where they differ from that of the scores.
    """
    rules = settings.decisions
    rules.check_classes(classes)
    if rules.is_default:
        return {}
    if scores is None:
        return {name: _without_validation(settings, classes) for name in models}
    found = {}
    for name in models:
        judged = replace(scores, round=rounds.get(name, scores.round))
        if name == GLOBAL and min_cell > 1 and scores.sites is not None:
            found[name] = _fit_on_cells(settings, judged, min_cell)
        else:
            found[name] = _fit(settings, name, judged)
    return found


def _fit_on_cells(settings: Evaluation, scores: Scores, min_cell: int) -> Found:
    """Fit a global model on the histograms that sites would send under the disclosure floor."""
    sites = {
        site: cells_by_class(_histograms_at(site, scores, min_cell).value, scores.classes)
        for site in sorted(set(scores.sites or ()))
    }
    found = fit_from_histograms(settings.decisions, settings.threshold, scores.classes, sites)
    where: Found = {"fitted_on": scores.part, "round": scores.round}
    where |= {"from": "histograms", "min_cell": min_cell}
    return decision_entries(settings.decisions, found.thresholds, found.calibration, where)


def _histograms_at(site: str, scores: Scores, min_cell: int) -> Gather:
    rows = np.flatnonzero(np.array(scores.sites) == site)
    return score_histograms(
        scores.logits[GLOBAL][rows],
        scores.labels[rows],
        scores.known[rows],
        None if scores.patients is None else scores.patients[rows],
        min_cell,
    )


def _fit(settings: Evaluation, model: str, scores: Scores) -> Found:
    rules = settings.decisions
    samples = class_samples(scores, model)
    calibration = fit_calibration(rules.calibration, samples)
    thresholds = fit_thresholds(rules, settings.threshold, samples, calibration)
    where = {"fitted_on": scores.part, "round": scores.round}
    return decision_entries(rules, thresholds, calibration, where)


def class_samples(scores: Scores, model: str) -> dict[str, ClassSample]:
    """Return every class's entries; a client's own model is judged on that client's images."""
    rows = np.arange(len(scores))
    sites = None if scores.sites is None else np.array(scores.sites)
    if model != GLOBAL and sites is not None:
        rows = np.flatnonzero(sites == model)
    logits, labels, known = scores.logits[model][rows], scores.labels[rows], scores.known[rows]
    patients = None if scores.patients is None else scores.patients[rows]
    images = LabelledImages.of(labels, known, patients)
    samples = {}
    for column, auc in enumerate(images.influences([logits])):
        interval = auc_interval(auc)
        samples[scores.classes[column]] = sample_of_scores(
            logits[:, column].astype(np.float64),
            labels[:, column],
            known[:, column],
            patients,
            None if sites is None else sites[rows],
            None if interval.rule is None else (interval.low, interval.high),
        )
    return samples


def decision_entries(
    rules: DecisionRules,
    thresholds: Mapping[str, Any],
    calibration: Mapping[str, Any],
    where: Mapping[str, Any],
) -> Found:
    """Return the entries of ``model.json``, without what the recipe does not ask for."""
    found: Found = {}
    if thresholds:
        found["thresholds"] = {"rule": rules.rule, **where, "classes": dict(thresholds)}
    if calibration:
        found["calibration"] = {"method": rules.calibration, **where, "classes": dict(calibration)}
    return found


def _without_validation(settings: Evaluation, classes: Sequence[str]) -> Found:
    rules = settings.decisions
    thresholds = {
        name: fallback(settings.threshold, NO_VALIDATION, {})
        for name in classes
        if rules.of_class(name).is_fitted
    } | given_thresholds(rules, tuple(classes))
    calibration = (
        {}
        if rules.calibration == "none"
        else {name: {"fallback": NO_VALIDATION} for name in classes}
    )
    where = {"fitted_on": None, "round": None}
    return decision_entries(rules, thresholds, calibration, where)


def class_thresholds(fitted: Mapping[str, Found]) -> dict[str, Mapping[str, Any]]:
    """Return every model's stored thresholds by class."""
    return {
        name: entries["thresholds"]["classes"]
        for name, entries in fitted.items()
        if "thresholds" in entries
    }


def decision_results(
    scores: Scores, fitted: Mapping[str, Found], settings: Evaluation
) -> dict[str, Any]:
    """Return ``decisions`` for result.json: what was fitted, by model, on the test images.

    Empty if nothing was asked for.
    """
    images = LabelledImages.of(scores.labels, scores.known, scores.patients)
    found = {
        name: decision_quality(images, scores.logits[name], scores.classes, entries, settings)
        for name, entries in fitted.items()
    }
    plain: dict[str, Any] = nan_to_none({"decisions": found} if found else {})
    return plain


def decision_quality(
    images: LabelledImages,
    logits: npt.NDArray[np.float32],
    classes: Sequence[str],
    entries: Found,
    settings: Evaluation,
) -> dict[str, Any]:
    """Return the quality of one model's thresholds and calibration on these images."""
    thresholds = entries.get("thresholds", {}).get("classes", {})
    present = called_present(torch.from_numpy(logits), settings, classes, thresholds).numpy()
    quality: dict[str, Any] = {}
    if "thresholds" in entries:
        quality["thresholds"] = threshold_quality(images, logits, present, classes, thresholds)
    if "calibration" in entries:
        fits = entries["calibration"]["classes"]
        quality["calibration"] = calibration_quality(images, logits, classes, fits)
    return quality


def store_decisions(
    folder: RunFolder, found: Mapping[str, Found], of_last: Mapping[str, Found] = NOTHING_FITTED
) -> None:
    """Add the entries to ``model.json``: those of a client's own model under ``by_client``.

    ``of_last`` are those of the models of the last round, where others are served.
    """
    if not found:
        return
    card = folder.read_json(folder.model) | _entries(found)
    if of_last:
        card[LAST] |= _entries(of_last)
    write_json(folder.model, nan_to_none(card))


def _entries(found: Mapping[str, Found]) -> Found:
    own = {name: entries for name, entries in found.items() if name != GLOBAL}
    return {**found.get(GLOBAL, {}), **({"by_client": own} if own else {})}


def stored_decisions(card: Mapping[str, Any], model: str) -> Found:
    """Return the entries of one model; empty if nothing was fitted for it."""
    entries = card if model == GLOBAL else card.get("by_client", {}).get(model, {})
    return {name: entries[name] for name in ("thresholds", "calibration") if name in entries}


def with_given(entries: Found, given: Given, classes: Sequence[str]) -> Found:
    """Return the entries with thresholds set by hand, for all classes or by class."""
    by_class = given_by_class(given)
    named = {name: number for name, number in by_class.items() if name is not None}
    DecisionRules(by_class=dict.fromkeys(named, 0.5)).check_classes(classes)
    if not by_class:
        return entries
    stored = entries.get("thresholds", {"rule": "fixed", "fitted_on": None, "round": None})
    everywhere = dict.fromkeys(classes, by_class[None]) if None in by_class else {}
    old = {} if None in by_class else stored.get("classes", {})
    new = {
        name: {**given_threshold(number), "rule": f"{number:g}"}
        for name, number in (everywhere | named).items()
    }
    return {**entries, "thresholds": {**stored, "classes": {**old, **new}}}


def given_by_class(given: Given) -> Mapping[str | None, float]:
    """Return thresholds by class; the key None stands for all other classes."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {name: float(number) for name, number in given.items()}
    return {None: float(given)}
