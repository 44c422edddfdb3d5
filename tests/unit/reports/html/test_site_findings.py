"""What sites of a study found of its model, where the server tested nothing; by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.html_pages import Page
from support.report_folders import write_run_folder

from fedquilt.reports.html.run_files import RunFiles
from fedquilt.reports.html.run_report import write_run_report
from fedquilt.reports.html.site_findings import findings_at_sites

CLASSES = ("edema", "mass", "hernia", "nodule")
# Per site: AUC, positives and negatives of each class; None: it did not annotate the class.
NORTH = ([0.8, 0.9, None, 0.6], [20, 5, 0, 4], [30, 45, 0, 6])
SOUTH = ([0.7, None, None, 0.8], [10, 0, 0, 2], [10, 0, 0, 3])


def report_of(aucs: list[Any], positives: list[int], negatives: list[int]) -> dict[str, Any]:
    recalls = [0.5 if each else None for each in positives]
    return {
        "per_class": {
            "auc": aucs,
            "positives": [float(each) for each in positives],
            "negatives": [float(each) for each in negatives],
            "recall": recalls,
            "specificity": [0.9 if each else None for each in negatives],
        },
        "averages": {"macro_auc": 0.75, "map": 0.5},
        "defined": {"macro_auc": sum(each is not None for each in aucs)},
    }


def intervals_of(aucs: list[Any], positives: list[int], negatives: list[int]) -> dict[str, Any]:
    columns = {
        "value": aucs,
        "low": [each and each - 0.1 for each in aucs],
        "high": [each and each + 0.05 for each in aucs],
    }
    counts = {"positives": positives, "negatives": negatives}
    patients = {"positive_patients": positives, "negative_patients": negatives}
    averages = {"macro_auc": {"value": 0.75, "low": 0.7, "high": 0.8}}
    return {
        "unit": "image",
        "per_class": {"auc": columns},
        "averages": averages,
        **counts,
        **patients,
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    sites = {"north": NORTH, "south": SOUTH}
    over = {"mean": 0.77, "low": 0.6, "high": 0.88, "between": 0.0, "sites": 2}
    by_site = {
        "model": "global",
        "images": {"north": 50, "south": 20},
        "mean": {"macro_auc": 0.75, "map": 0.5},
        "deviation": {"macro_auc": 0.01, "map": 0.02},
        "reports": {name: report_of(*numbers) for name, numbers in sites.items()},
        "intervals": {name: intervals_of(*numbers) for name, numbers in sites.items()},
        "auc_over_sites": dict.fromkeys(CLASSES) | {"edema": over},
        "part": {"north": "test", "south": "validation"},
    }
    result = {"study": "Two hospitals", "reports": {}, "metrics": {}, "by_site": by_site}
    return write_run_folder(tmp_path / "run", CLASSES, result=result)


def test_findings_are_put_together_from_the_sites(folder: Path):
    edema, mass, hernia, nodule = findings_at_sites(RunFiles(folder))
    # Random effects where there are any; the one site's own interval; pairs as weights.
    assert (edema.auc.value, edema.auc.low, edema.auc.high) == (0.77, 0.6, 0.88)
    assert (mass.auc.value, mass.auc.low, mass.auc.high) == pytest.approx((0.9, 0.8, 0.95))
    assert (hernia.auc.value, hernia.judgement) == (None, "untested")
    assert nodule.auc.value == pytest.approx((0.6 * 24 + 0.8 * 6) / 30)
    assert not nodule.auc.has_interval
    assert (edema.positives, edema.negatives, edema.positive_patients) == (30, 40, None)
    assert edema.sensitivity.value == pytest.approx(0.5)
    assert (edema.judgement, nodule.judgement) == ("measured", "few")


def test_the_first_screen_of_a_study_has_what_its_sites_found(folder: Path):
    page = Page(write_run_report(folder)[0].read_text(encoding="utf-8"))
    assert "2 sites tested it on 70 images of their own" in page.text
    assert "1 site had only validation images" in page.text
    assert "It sees edema (AUC 77.0 %, 95 % interval 60.0 to 88.0; 30 test images" in page.text
    assert "nothing is known of what it sees" not in page.text
    assert str(folder) not in page.text  # such as where scores would be
    table = page.cells[page.cells.index("over sites") :]
    assert table[1:5] == ["edema", "80.070.0–85.020 positive", "70.060.0–75.010 positive",
                          "77.060.0–88.02 sites"]  # fmt: skip
    hernia = table.index("hernia")
    assert table[hernia + 1 : hernia + 4] == ["–", "–", "–"]


def test_a_run_without_reports_of_sites_has_none(tmp_path: Path):
    assert findings_at_sites(RunFiles(write_run_folder(tmp_path / "run", CLASSES))) == []
