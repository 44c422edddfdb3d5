"""What is read of a result, and how far the test can judge a class."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.report_folders import write_run_folder

from fedquilt.core.errors import UserError
from fedquilt.reports.html.findings import Estimate, Finding, findings_of
from fedquilt.reports.html.run_files import RunFiles


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
    assert (edema.positives, edema.negatives, edema.annotators) == (20, 100, ("south",))
    assert (mass.auc, mass.sensitivity) == (Estimate(), Estimate(0.75))
    assert mass.annotators == ("north",)


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
