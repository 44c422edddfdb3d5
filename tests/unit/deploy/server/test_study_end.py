"""At the end of a study its sites say what the model is worth, and thresholds come from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.remote_sites import CallingChannel
from support.validating_study import Consortium

from fedquilt.core.version import VERSION
from fedquilt.deploy.protocol.messages import REPORT, Message, pack, unpack
from fedquilt.deploy.shared_thresholds import BY_SITE, BY_STUDY, as_tensors
from fedquilt.deploy.site.model import SiteModel
from fedquilt.metrics import fitting_from_histograms
from fedquilt.metrics.evaluation import predict_logits
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import Run, read_run
from fedquilt.runs.intervals import result_intervals, site_intervals
from fedquilt.runs.scores import Scores
from fedquilt.runs.trained_models import load_weights
from fedquilt.training.client import Workspace

DECISIONS = {"decisions": {"rule": "sensitivity>=0.8", "calibration": "platt"}}
SETTINGS: dict[str, Any] = {
    "data": {"name": "digits-mosaic", "classes": 3, "train": 300, "test": 240},
    "annotation": {"name": "missing", "missing": 1},
    "evaluation": DECISIONS,
    "lr": 0.003,
    "rounds": 3,
}
KEPT = ("annotators", "body", "head", "buffers", "training_loss")
JUDGED = ("validation_auc", "validation_loss")


@pytest.fixture(scope="module")
def consortium(tmp_path_factory: pytest.TempPathFactory) -> Consortium:
    return Consortium(tmp_path_factory.mktemp("consortium"), **SETTINGS)


@pytest.fixture(scope="module")
def study_run(consortium: Consortium) -> Run:
    study = consortium.study()
    return read_run(consortium.run(study, CallingChannel(consortium.sites(study))))


def sites_of(finished: Run) -> list[str]:
    return [holding.name for holding in finished.allocation.holdings]


def scores_at(consortium: Consortium, finished: Run, site: str) -> Scores:
    """The scores of the served model on the site's test images, computed here."""
    data, task = consortium.site_data(site).test, consortium.simulation.task
    assert data is not None
    weights = load_weights(finished.folder, finished.models.card, "global")
    workspace = Workspace.of(task, torch.device("cpu"))
    images = data.images[data.indices]
    logits = predict_logits(
        workspace.forward, weights, images, task, batch_size=256, device=workspace.device
    )
    return Scores(
        part="test",
        round=1,
        classes=task.classes,
        ids=tuple(f"{site} {row}" for row in range(len(data))),
        labels=data.labels.numpy(),
        known=data.known.numpy(),
        logits={"global": logits.numpy()},
        sites=(site,) * len(data),
    )


def test_every_sites_report_is_what_its_own_images_give(
    consortium: Consortium, study_run: Run
) -> None:
    by_site, settings = study_run.result["by_site"], consortium.recipe.evaluation
    parts = {site: scores_at(consortium, study_run, site) for site in sites_of(study_run)}
    assert by_site["model"] == "global"
    assert by_site["part"] == dict.fromkeys(parts, "test")
    for site, scores in parts.items():
        expected = result_intervals(scores, settings, 0)["intervals"]["global"]
        found = by_site["intervals"][site]
        for name in ("images", "positives", "negatives", "positive_patients"):
            assert found[name] == expected[name], name
        for metric in ("auc", "ap"):
            for end in ("value", "low", "high"):
                ours, theirs = (each["per_class"][metric][end] for each in (found, expected))
                assert ours == theirs, (site, metric, end)
        macro = expected["averages"]["macro_auc"]
        assert found["averages"]["macro_auc"] == {
            key: macro[key] for key in ("value", "low", "high")
        }


def test_the_mean_over_sites_is_that_of_a_simulation(
    consortium: Consortium, study_run: Run
) -> None:
    parts = [scores_at(consortium, study_run, site) for site in sites_of(study_run)]
    pooled = Scores(
        part="test",
        round=1,
        classes=parts[0].classes,
        ids=tuple(name for each in parts for name in each.ids),
        labels=np.concatenate([each.labels for each in parts]),
        known=np.concatenate([each.known for each in parts]),
        logits={"global": np.concatenate([each.logits["global"] for each in parts])},
    )
    ends = np.cumsum([0, *(len(each) for each in parts)])
    rows = {
        name: torch.arange(start, end)
        for name, start, end in zip(sites_of(study_run), ends, ends[1:])
    }
    expected = site_intervals(pooled, rows, dict.fromkeys(rows, "global"))["auc_over_sites"]
    found = study_run.result["by_site"]["auc_over_sites"]
    assert any(each is not None for each in expected.values())
    assert found == expected


def test_thresholds_are_those_of_a_simulation_from_the_same_histograms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fitting_from_histograms, "MIN_SITE_POSITIVES", 10)
    consortium = Consortium(tmp_path, **SETTINGS, min_cell=2)
    run(consortium.recipe, tmp_path / "local", cache=tmp_path / "cache")
    study = consortium.study()
    policies = dict.fromkeys(study.site_names, SitePolicy(min_cell=2))
    sites = consortium.sites(study, policies)
    consortium.run(study, CallingChannel(sites), "study")
    here, there = (
        json.loads((tmp_path / name / "model.json").read_text()) for name in ("study", "local")
    )
    for kind in ("thresholds", "calibration"):
        fitted = [name for name, entry in here[kind]["classes"].items() if "fallback" not in entry]
        assert fitted, kind
        assert here[kind]["classes"] == there[kind]["classes"]
        assert here[kind]["from"] == "histograms"
        assert here[kind]["sites"] == sorted(study.site_names)
    for name in study.site_names:
        kept = SiteModel(tmp_path / "sites" / name / "states").read()
        assert kept is not None
        for label, entry in kept.decisions["thresholds"]["classes"].items():
            shared = here["thresholds"]["classes"][label]
            if "fallback" not in shared:
                assert (entry["logit"], entry["fitted_at"]) == (shared["logit"], BY_STUDY)


def test_where_no_site_has_enough_positives_each_fits_for_itself(
    consortium: Consortium, study_run: Run
) -> None:
    card = study_run.models.card
    assert all("fallback" in each for each in card["thresholds"]["classes"].values())
    logits = []
    for name in sites_of(study_run):
        kept = SiteModel(consortium.folder / "sites" / name / "states").read()
        assert kept is not None
        annotates = consortium.study().site(name).annotates
        for label, entry in kept.decisions["thresholds"]["classes"].items():
            assert entry["fitted_at"] == BY_SITE
            if label in annotates and "fallback" not in entry:
                assert entry["sensitivity"] >= 0.8
                logits.append(entry["logit"])
            if label not in annotates:
                assert entry["fallback"].startswith("0 positive")
    assert len(set(logits)) > 1, "this test needs sites whose thresholds differ"


def test_what_leaves_at_the_end_is_in_the_audit_logs(
    consortium: Consortium, study_run: Run
) -> None:
    for name in sites_of(study_run):
        log = (consortium.folder / "sites" / name / "audit.jsonl").read_text().splitlines()
        sent = [each for each in map(json.loads, log) if each["event"] == "sent"]
        assert [(each["kind"], [*each["parts"]]) for each in sent][-3:] == [
            ("end", []),
            ("histograms", ["score_histograms"]),
            ("report", ["site_report"]),
        ]


def test_a_policy_can_refuse_and_the_site_still_keeps_its_thresholds(
    consortium: Consortium,
) -> None:
    study = consortium.study()
    first, second, *_ = study.site_names
    policies = {
        first: SitePolicy(min_cell=0, may_leave=(*KEPT, *JUDGED, "score_histograms")),
        second: SitePolicy(min_cell=0, may_leave=(*KEPT, *JUDGED, "site_report")),
    }
    notices: list[str] = []
    sites = consortium.sites(study, policies, "refusing")
    path = consortium.run(
        study,
        CallingChannel(sites),
        "refusing-run",
        observe=lambda record: notices.append(record.get("notice", "")),
    )
    found = read_run(path)
    assert set(found.result["by_site"]["reports"]) == set(study.site_names) - {first}
    assert found.models.card["thresholds"]["sites"] == sorted(set(study.site_names) - {second})
    for site, part in ((first, "site_report"), (second, "score_histograms")):
        refused = [each for each in notices if each.startswith(site) and part in each]
        assert len(refused) == 1
        log = (consortium.folder / "refusing" / site / "audit.jsonl").read_text()
        assert f'"{part}"' not in log
    kept = SiteModel(consortium.folder / "refusing" / first / "states").read()
    assert kept is not None
    assert kept.decisions["thresholds"]["classes"]


def test_a_site_reports_once_for_the_same_question(consortium: Consortium, study_run: Run) -> None:
    study = consortium.study()
    name = study.site_names[0]
    site, classes = consortium.sites(study)[name], study.classes  # restarted

    def asked(logit: float | None) -> dict[str, Any]:
        entries = {} if logit is None else {classes[0]: {"logit": logit}}
        tree = as_tensors({"thresholds": {"classes": entries}}, classes)
        facts = {"kind": REPORT, "study": study.hash, "version": VERSION, "site": name}
        facts |= {"round": study_run.result["served"]["round"]}
        return dict(unpack(site.answer(pack(Message(facts, tree)))).facts)

    assert "error" not in asked(None)  # as the study asked, where nothing was fitted
    other = asked(0.25)
    assert other["error"] == "RefusedRequest"
    assert "once" in other["text"]


def test_sites_with_own_models_report_on_those(tmp_path: Path) -> None:
    consortium = Consortium(tmp_path, "local-only", **(SETTINGS | {"rounds": 2}))
    study = consortium.study()
    found = read_run(consortium.run(study, CallingChannel(consortium.sites(study))))
    assert found.result["by_site"]["model"] == "own"
    assert set(found.result["by_site"]["reports"]) == set(study.site_names)
    aucs = [each["averages"]["macro_auc"] for each in found.result["by_site"]["reports"].values()]
    assert all(each is not None for each in aucs)
