"""Sites that fail or never connect: the others continue, or the study ends in time."""

from __future__ import annotations

import time

from running_study import RunningStudy


def test_too_few_sites_end_the_study_and_are_named(consortium: RunningStudy) -> None:
    consortium.kill_all()
    consortium.start_server()
    consortium.start_site("client-1")
    began = time.monotonic()
    assert consortium.submit(start_seconds=3.0).wait(150) == 1
    assert time.monotonic() - began < 120
    said = consortium.said("submit")
    assert "missing: client-0 (not connected), client-2 (not connected)" in said
    assert "study digits: not submitted, round 0 of 3" in consortium.status()


def test_the_study_continues_without_a_site_that_fails(consortium: RunningStudy) -> None:
    consortium.reset()
    site = consortium.folder / "sites" / "client-0"
    intact = (site / "labels.csv").read_text()
    (site / "labels.csv").write_text(intact + "patient-Meier.png,train,1,1\n")
    try:
        assert consortium.submit().wait(300) == 0, consortium.said("submit")
    finally:
        (site / "labels.csv").write_text(intact)
    assert len(consortium.history()) == 3
    for record in consortium.history():
        assert sorted(record["cohort"]) == ["client-1", "client-2"]
        assert record["missing"]["client-0"].startswith("UserError")
    assert "remove the rows" in (site / "fedquilt-site" / "site.log").read_text()
    for path in consortium.kits["server"].rglob("*"):  # its error text never left the site
        content = path.read_bytes() if path.is_file() else b""
        assert b"remove the rows" not in content, path
        assert b"Meier" not in content, path
