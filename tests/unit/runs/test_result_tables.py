"""Results of many sites: written as a table, read as they were."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedquilt.core.errors import UserError
from fedquilt.runs.result_tables import LARGE, with_tables, write_result

CLASSES = [f"class {number}" for number in range(200)]


def report(site: int) -> dict[str, Any]:
    return {
        "classes": CLASSES,
        "per_class": {
            "auc": [None if (site + place) % 7 == 0 else site / 50 for place in range(200)],
            "positives": [float(site * place) for place in range(200)],
        },
        "averages": {"macro_auc": 0.1 * site, "map": None if site == 3 else 1 / (1 + site)},
        "defined": {"macro_auc": 200 - site},
        "zero_division": "skip",
    }


def result(sites: int) -> dict[str, Any]:
    return {
        "metrics": {"macro_auc": 0.5},
        "annotation_status": {"clients": {"a/b": {"annotated": {"map": None}}}, "mean": {}},
        "by_site": {
            "mean": {"macro_auc": 0.25},
            "reports": {f"site/{number}": report(number) for number in range(sites)},
            "intervals": {f"site/{number}": {"low": number} for number in range(sites)},
        },
    }


def test_a_large_result_is_small_as_json_and_reads_as_it_was(tmp_path):
    whole = result(50)
    write_result(tmp_path / "result.json", whole)
    stored = json.loads((tmp_path / "result.json").read_text())
    assert stored["by_site"]["reports"] == {"table": "tables/by_site_reports.npz"}
    assert stored["by_site"]["mean"] == {"macro_auc": 0.25}
    assert (tmp_path / "result.json").stat().st_size < 4000
    assert len(json.dumps(whole)) > 200_000
    found = with_tables(stored, tmp_path)
    assert found == whole
    counts = found["by_site"]["reports"]["site/7"]["defined"]["macro_auc"]
    assert isinstance(counts, int)
    assert isinstance(found["by_site"]["reports"]["site/7"]["per_class"]["positives"][0], float)


def test_a_small_result_has_no_tables(tmp_path):
    whole = result(2)
    write_result(tmp_path / "result.json", whole)
    assert json.loads((tmp_path / "result.json").read_text()) == whole
    assert not (tmp_path / "tables").exists()
    assert with_tables(whole, tmp_path) == whole


def test_rows_that_differ_in_form_stay_in_the_json(tmp_path):
    whole = result(2)
    rows = {f"client {number}": {"annotated": {"map": 0.5}} for number in range(LARGE)}
    rows["client 7"] = {"annotated": {}}
    whole["annotation_status"]["clients"] = rows
    write_result(tmp_path / "result.json", whole)
    assert with_tables(json.loads((tmp_path / "result.json").read_text()), tmp_path) == whole


def test_a_missing_table_is_said_with_what_to_do(tmp_path):
    write_result(tmp_path / "result.json", result(50))
    (tmp_path / "tables" / "by_site_reports.npz").unlink()
    with pytest.raises(UserError, match=r"by_site_reports\.npz is damaged or missing.*--resume"):
        with_tables(json.loads((tmp_path / "result.json").read_text()), tmp_path)
