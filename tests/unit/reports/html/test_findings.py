"""What is read of a result, and how far the test can judge a class."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.report_folders import write_run_folder

from fedquilt.core.errors import UserError
from fedquilt.reports.html.findings import Estimate, Finding, Threshold, findings_of
from fedquilt.reports.html.run_files import RunFiles
from fedquilt.reports.html.run_report import write_run_report


@pytest.mark.parametrize(
    ("auc", "positives", "patients", "judgement"),
    [
        (Estimate(0.9, 0.8, 0.95), 10, None, "measured"),
        (Estimate(0.9), 10, None, "measured"),
        (Estimate(0.9, 0.8, 0.95), 9, None, "few"),
        (Estimate(0.9, 0.8, 0.95), 40, 9, "few"),
        (Estimate(0.6, 0.5, 0.7), 40, 30, "chance"),
        (Estimate(), 0, None, "untested"),
    ],
)
def test_judgement(auc: Estimate, positives: int, patients: int | None, judgement: str):
    finding = Finding(
        place=0,
        name="mass",
        positives=positives,
        negatives=100,
        positive_patients=patients,
        negative_patients=None if patients is None else 50,
        auc=auc,
    )
    assert finding.judgement == judgement


def test_classes_are_read_in_order_with_their_annotators(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema", "mass"), auc=[0.8, None])
    edema, mass = findings_of(RunFiles(folder))
    assert (edema.name, edema.auc, edema.ap) == ("edema", Estimate(0.8), Estimate(0.4))
    assert (edema.positives, edema.negatives, edema.annotators) == (20, 100, ["south"])
    assert (mass.auc, mass.sensitivity) == (Estimate(), Estimate(0.75))
    assert mass.annotators == ["north"]


def test_models_of_their_own_are_averaged_where_defined(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema",), auc=[0.8])
    run = RunFiles(folder)
    report = run.result["reports"]["global"]
    second = report | {"per_class": report["per_class"] | {"auc": [0.6], "ap": [None]}}
    run.result["reports"] = {"a": report, "b": second}
    (finding,) = findings_of(run)
    assert finding.auc.value == pytest.approx(0.7)
    assert finding.ap.value == pytest.approx(0.4)


def test_an_unfinished_run_says_how_to_finish_it(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema",))
    (folder / "result.json").unlink()
    with pytest.raises(UserError, match=r"not finished; .* fedquilt run --out .* --resume"):
        findings_of(RunFiles(folder))


def test_a_damaged_file_is_named(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema",))
    (folder / "data.json").write_text("{")
    with pytest.raises(UserError, match=r"data\.json is damaged"):
        _ = RunFiles(folder).data


def test_intervals_and_patients_are_read(tmp_path: Path):
    auc = {"value": [0.81, None], "low": [0.7, None], "high": [0.9, None], "rule": ["logit", None]}
    intervals = {
        "unit": "patient",
        "positive_patients": [8, 0],
        "negative_patients": [60, 60],
        "per_class": {"auc": auc},
        "averages": {"macro_auc": {"value": 0.81, "low": 0.7, "high": 0.9}},
    }
    folder = write_run_folder(
        tmp_path / "run", ("edema", "mass"), result={"intervals": {"global": intervals}}
    )
    edema, mass = findings_of(RunFiles(folder))
    assert edema.auc == Estimate(0.81, 0.7, 0.9)
    assert (edema.positive_patients, edema.negative_patients) == (8, 60)
    assert edema.judgement == "few"
    assert edema.sensitivity == Estimate(0.75)  # no interval: the report's number
    assert mass.auc == Estimate()
    page = page_text(folder)
    assert "95 % interval 70.0 to 90.0" in page
    assert "No intervals were computed" not in page


def test_images_without_patients_are_not_called_patients(tmp_path: Path):
    intervals = {
        "unit": "image",
        "positive_patients": [20],
        "negative_patients": [100],
        "per_class": {"auc": {"value": [0.8], "low": [0.7], "high": [0.9]}},
    }
    folder = write_run_folder(
        tmp_path / "run", ("edema",), result={"intervals": {"global": intervals}}
    )
    (finding,) = findings_of(RunFiles(folder))
    assert finding.positive_patients is None
    assert finding.auc.low == 0.7


def test_thresholds_of_the_model_card(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema", "hernia", "mass"))
    (folder / "model.json").write_text(
        json.dumps(
            {
                "threshold": 0.5,
                "thresholds": {
                    "rule": "sensitivity>=0.95",
                    "fitted_on": "validation",
                    "classes": {
                        "edema": {"logit": -2.1972, "probability": 0.1, "positives": 61},
                        "hernia": {"probability": 0.5, "fallback": "3 positive patients"},
                    },
                },
            }
        )
    )
    edema, hernia, mass = (each.threshold for each in findings_of(RunFiles(folder)))
    assert edema == Threshold(0.1, "sensitivity>=0.95", is_fitted=True)
    assert hernia == Threshold(0.5, "not fitted: 3 positive patients")
    assert mass == Threshold(0.5, "fixed")


def page_text(folder: Path) -> str:
    html, _ = write_run_report(folder)
    return html.read_text(encoding="utf-8")
