"""A site that missed the survey is named in every job, if the method needs its answer."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from support.remote_sites import CallingChannel, make_sites, make_study
from support.tiny_federation import make_method

from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.server.status import Status, status_lines


def _notices(name: str, folder: Path, *, late: str = "site-2") -> list[list[str]]:
    """Notices of a first job without the late site and of a second one with it."""
    study = make_study(make_method(name), quorum=2)
    sites = make_sites(study, folder / "sites")
    heard: list[list[str]] = []
    for present in ([site for site in sites if site != late], list(sites)):
        records: list[dict[str, Any]] = []
        run = ServerRun(
            study,
            folder / "run",
            CallingChannel({site: sites[site] for site in present}),
            observe=records.append,
            should_stop=lambda seen=records: any("loss" in each for each in seen),
        )
        run.run(resume=bool(heard))
        heard.append([each["notice"] for each in records if "notice" in each])
    return heard


@pytest.mark.parametrize(
    ("name", "parts", "lost"),
    [
        ("fedaws", "owned", "it never receives"),
        ("fedalc", "owned, codes", "it never receives"),
        ("fedlsm", "positives, annotated", "the totals lack its part"),
    ],
)
def test_the_site_is_named_in_every_job(
    name: str, parts: str, lost: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="fedquilt.deploy"):
        first, second = _notices(name, tmp_path)
    for notices in (first, second):
        (found,) = [each for each in notices if "missed the survey" in each]
        assert found.startswith("site-2 missed the survey")
        assert f"asks there for {parts}, which" in found
        assert lost in found
    assert caplog.text.count("site-2 missed the survey") == 2


def test_no_site_is_named_if_nothing_is_lost(tmp_path: Path) -> None:
    for number, (name, late) in enumerate([("fedavg", "site-2"), ("fedaws", "nobody")]):
        jobs = _notices(name, tmp_path / str(number), late=late)
        assert not any("survey" in each for notices in jobs for each in notices)


def test_notices_are_part_of_the_status_lines() -> None:
    status = Status()
    status.begin(make_study(make_method("fedaws")), ["site-0"])
    status.note({"notice": "site-2 missed the survey"})
    said = status_lines(status.to_dict() | {"connected": []})
    assert "notice: site-2 missed the survey" in said
