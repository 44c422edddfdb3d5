"""A secure study over FLARE ends with the bits of ring sums in one process, also without a site."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from digits_recipe import recipe_settings
from one_process import local_weights
from running_study import RunningStudy
from safetensors.torch import load_file

from fedquilt.core.tree import same_bits
from fedquilt.deploy.audit_chain import verify_chain

LOST = "client-3"
ANNOTATES = {str(number): ["digit 0", "digit 1", "digit 2"] for number in range(3)} | {
    "3": ["digit 0", "digit 1"]  # without it, three sites annotate each class
}


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStudy]:
    settings = recipe_settings("fedavg-pl", rounds=4) | {
        "summation": "secure",
        "partition": {"name": "iid", "clients": 4},
        "annotation": {"name": "listed", "annotates": ANNOTATES},
    }
    with RunningStudy(tmp_path_factory.mktemp("secure"), settings, {"quorum": 3}) as running:
        yield running


def events(study: RunningStudy, site: str) -> list[dict[str, Any]]:
    path = study.folder / "sites" / site / "fedquilt-site" / "audit.jsonl"
    assert verify_chain(path).damage is None
    return [json.loads(line) for line in path.read_text().splitlines()]


def assert_bits_of_ring_sums(study: RunningStudy) -> None:
    there = load_file(study.run_folder / "model.safetensors")
    assert same_bits(there, local_weights(study, "ring"))


def test_four_sites_end_with_the_bits_of_ring_sums(study: RunningStudy, tmp_path: Path) -> None:
    study.reset()
    assert study.submit("--out", str(tmp_path / "fetched")).wait(300) == 0, study.said("submit")
    assert [len(record["cohort"]) for record in study.history()] == [4] * 4
    assert_bits_of_ring_sums(study)
    for name in study.study.site_names:
        sent = [each for each in events(study, name) if each["event"] == "sent"]
        trained = [each for each in sent if each["kind"] == "train"]
        assert [each["round"] for each in trained] == [0, 1, 2, 3]
        assert all("numbers" in each and "parts" not in each for each in trained)  # masked
        unmasked = [each for each in sent if each["kind"] == "unmask"]
        assert all(each["survivors"] == sorted(study.study.site_names) for each in unmasked)
        assert not list((study.run_folder).rglob(f"{name}.sums.key"))


def test_a_site_that_is_lost_changes_no_bit_of_the_others_sum(study: RunningStudy) -> None:
    study.reset()
    submitted = study.submit()
    study.wait_for_round(1)
    study.kill(LOST)
    assert submitted.wait(300) == 0, study.said("submit")
    cohorts = [sorted(record["cohort"]) for record in study.history()]
    assert cohorts[0] == sorted(study.study.site_names)
    assert cohorts[-1] == ["client-0", "client-1", "client-2"]
    assert_bits_of_ring_sums(study)
