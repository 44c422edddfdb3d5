"""A recipe gives the same weights in one process and across three sites."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from digits_recipe import recipe_settings
from one_process import largest_difference
from running_study import RunningStudy
from safetensors.torch import load_file

from fedquilt.core.tree import same_bits
from fedquilt.deploy.audit_chain import verify_chain
from fedquilt.runs.finished_run import read_run

# test_faults.py has SCAFFOLD, also after kills, and test_demo.py FedMLP. RSCFed uses Gather.
METHODS = ("fedavg", "fedlsm", "rscfed")


@pytest.mark.parametrize("method", METHODS)
def test_three_sites_end_with_the_weights_of_one_process(
    method: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if method == "fedavg":
        _check_same_result(request.getfixturevalue("consortium"), tmp_path / "fetched")
        return
    with RunningStudy(tmp_path, recipe_settings(method)) as study:
        _check_same_result(study, tmp_path / "fetched")


def _check_same_result(study: RunningStudy, out: Path) -> None:
    study.reset()
    assert study.submit("--out", str(out)).wait(300) == 0, study.said("submit")
    assert largest_difference(study) <= 1e-6
    fetched = read_run(out)
    assert [record["round"] for record in fetched.history] == [1, 2, 3]
    assert all(len(record["cohort"]) == 3 for record in fetched.history)
    assert fetched.result["metrics"]["macro_auc"] is not None
    assert fetched.annotators["digit 0"] == ["client-0", "client-2"]
    fetched_weights, kept = (
        load_file(each / "model.safetensors") for each in (out, study.run_folder)
    )
    assert same_bits(fetched_weights, kept)
    _check_states_and_logs(study)


def _check_states_and_logs(study: RunningStudy) -> None:
    """States are only at the sites; both audit logs hold parts and sizes, and no file names."""
    assert not list(study.kits["server"].rglob("states"))
    for name in study.study.site_names:
        site = study.folder / "sites" / name / "fedquilt-site"
        states = list((site / "states").rglob("after-*.json"))
        assert states
        private = [site, site / "cache", site / "site.log", *states]
        assert not any(path.stat().st_mode & 0o077 for path in private)
        assert verify_chain(site / "audit.jsonl").damage is None
        lines = [json.loads(line) for line in (site / "audit.jsonl").read_text().splitlines()]
        sent = [line for line in lines if line["event"] == "sent" and line["kind"] == "train"]
        assert [line["round"] for line in sent] == [0, 1, 2]
        assert all(line["bytes"] > 0 and "training_loss" in line["parts"] for line in sent)
        assert ".png" not in (site / "audit.jsonl").read_text()
    audit_log = (study.run_folder / "audit.jsonl").read_text()
    assert ".png" not in audit_log
    assert verify_chain(study.run_folder / "audit.jsonl").damage is None
    received = [json.loads(line) for line in audit_log.splitlines()]
    assert sum(line["event"] == "received" for line in received) == 3 * 5  # survey, 3 rounds, end
