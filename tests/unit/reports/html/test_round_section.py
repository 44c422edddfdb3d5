"""Curves over rounds: of the test images, or of the validation part that chose the round."""

from __future__ import annotations

from pathlib import Path

from support.report_folders import write_run_folder

from fedquilt.reports.html.round_section import pseudo_label_section, round_section
from fedquilt.reports.html.run_files import RunFiles


def run_of(tmp_path: Path) -> RunFiles:
    return RunFiles(write_run_folder(tmp_path / "run", ("edema", "mass"), auc=[0.8, 0.6]))


def test_without_validation_the_curves_are_of_the_test_images(tmp_path: Path):
    found = round_section(run_of(tmp_path), 3)
    metrics, loss = found["charts"]
    assert metrics.title == "Test images (%)"
    assert [(line.label, line.last) for line in metrics.lines] == [
        ("macro-AUC", "70.0"),
        ("macro-AP", "40.0"),
    ]
    assert [line.last for line in loss.lines] == ["0.233"]  # 0.7 / 3
    assert not found["is_validated"]


def test_with_validation_they_are_of_the_validation_images(tmp_path: Path):
    run = run_of(tmp_path)
    for record, auc in zip(run.history, (0.7, 0.9, 0.8)):
        record["metrics"] = None
        record["validation"] = {"site_auc": auc, "loss": 1 - auc, "best_round": 2}
    run.result["served"] = {"model": "best", "round": 2, "why": "round 2 of 3 has the largest"}
    found = round_section(run, 2)
    metrics, loss = found["charts"]
    assert metrics.title == "Validation images (%)"
    assert [tick.text for tick in metrics.x_ticks] == ["1", "2", "3"]
    assert metrics.mark == metrics.width / 2
    assert [line.label for line in loss.lines] == ["training loss", "validation loss"]
    assert found["why"] == "round 2 of 3 has the largest"


def test_bytes_stand_beside_the_accuracy_they_bought(tmp_path: Path):
    run = run_of(tmp_path)
    run.history[:] = [
        {
            "round": number,
            "bytes_up": 500_000,
            "bytes_down": 1_000_000,
            "metrics": {"macro_auc": number / 100} if number % 2 == 0 else None,
        }
        for number in range(1, 41)
    ]
    rows = round_section(run, 40)["traffic"]
    # 20 rounds were evaluated; every third of them is shown, from the last one back.
    assert [row["round"] for row in rows] == ["4", "10", "16", "22", "28", "34", "40"]
    assert rows[0] == {"round": "4", "up": "2.0 MB", "down": "4.0 MB", "auc": "4.0"}
    assert rows[-1] == {"round": "40", "up": "20.0 MB", "down": "40.0 MB", "auc": "40.0"}


def test_pseudo_labels_of_the_last_round(tmp_path: Path):
    run = run_of(tmp_path)
    nothing = {"positives": 0, "negatives": 0}
    shares = ("positive_precision", "positive_recall", "negative_precision", "negative_recall")
    empty = nothing | dict.fromkeys(shares)
    some = {"positives": 12, "negatives": 1500, **dict(zip(shares, (0.75, 0.5, None, 0.0)))}
    for record, labels in zip(run.history, (empty, some, some)):
        record["pseudo_labels"] = {"edema": labels, "mass": empty}
    found = pseudo_label_section(run, 3)
    assert found["rows"][0] == {
        "name": "edema",
        "present": "12",
        "absent": "1,500",
        "shares": ["75.0", "50.0", "–", "0.0"],
    }
    assert [line.last for line in found["chart"].lines] == ["75.0", "–"]
    assert not found["is_empty"]
    assert pseudo_label_section(run_of(tmp_path), 3) == {"rows": []}
