"""Damage and changed data at a site: said, audited, and rebuilt or stopped; never used silently."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.site_folder import SiteFolder, make_site_folder

from fedquilt.core.version import VERSION
from fedquilt.deploy.protocol.frames import read_frame, write_frame
from fedquilt.deploy.protocol.messages import Message, pack, unpack
from fedquilt.deploy.site.data_pin import ChangedData
from fedquilt.deploy.site.states import SiteStates, study_folder
from fedquilt.deploy.site.trainer import open_client, serve

MakeSite = Callable[[str], SiteFolder]


@pytest.fixture
def make(tmp_path: Path) -> MakeSite:
    return lambda method: make_site_folder(tmp_path, method)


def _survey(site: SiteFolder) -> dict[str, Any]:
    """Ask the training process for its survey and return the reply's facts."""
    study = site.kit.study()
    facts = {"kind": "survey", "study": study.hash, "version": VERSION, "site": "*", "round": 0}
    requests, replies = io.BytesIO(), io.BytesIO()
    write_frame(requests, pack(Message(facts, {})))
    requests.seek(0)
    serve(site.kit, site.settings, requests, replies)
    replies.seek(0)
    return dict(unpack(read_frame(replies)).facts)


def _events(site: SiteFolder) -> list[dict[str, Any]]:
    return [json.loads(line) for line in site.audit_log.read_text().splitlines()]


def _states(site: SiteFolder) -> SiteStates:
    return SiteStates(study_folder(site.work, site.kit.study(), site.name))


def _add_a_row(site: SiteFolder) -> None:
    with site.labels.open() as file:
        rows = list(csv.reader(file))
    (site.images / "new.png").write_bytes((site.images / rows[1][0]).read_bytes())
    with site.labels.open("a", newline="") as file:
        csv.writer(file).writerow(["new.png", *rows[1][1:]])


def test_a_damaged_image_cache_is_audited_and_rebuilt(make: MakeSite) -> None:
    site = make("fedavg")
    assert "error" not in _survey(site)
    (path,) = (site.work / "cache").glob("*.u8")
    content = path.read_bytes()
    path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    assert "error" not in _survey(site)
    assert path.read_bytes() == content
    (event,) = (each for each in _events(site) if each["event"] == "damaged")
    assert (event["what"], event["file"]) == ("decoded images", path.name)


def test_rows_added_in_mid_study_stop_a_site_that_keeps_a_state(
    make: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    site = make("fedmlp")
    assert "error" not in _survey(site)
    _states(site).keep(0, {"method": {"tags": torch.zeros(8, 3)}})
    _add_a_row(site)
    reply = _survey(site)
    assert (reply["error"], reply["text"]) == ("ChangedData", "see the site's log")
    assert "8 images then, 9 now" in caplog.text
    assert _events(site)[-1]["error"] == "ChangedData"
    with pytest.raises(ChangedData, match="belongs to the images of then"):
        open_client(site.kit, site.settings)


def test_the_same_number_of_other_labels_is_noticed(make: MakeSite) -> None:
    import torch

    site = make("fedmlp")
    _survey(site)
    _states(site).keep(0, {"method": {"tags": torch.zeros(8, 3)}})
    lines = site.labels.read_text().splitlines()
    site.labels.write_text("\n".join([lines[0], *lines[1:][::-1]]) + "\n")
    with pytest.raises(ChangedData, match="8 images as then, but other names, labels or another"):
        open_client(site.kit, site.settings)


def test_a_site_that_keeps_nothing_goes_on_with_a_note_in_its_audit_log(make: MakeSite) -> None:
    site = make("fedavg")
    _survey(site)
    _add_a_row(site)
    refused = _survey(site)
    assert refused["error"] == "RefusedRequest"  # two answers would tell about the new patient
    assert "the survey was answered before this site's data changed" in refused["text"]
    assert [each["event"] for each in _events(site)].count("data changed") == 1
    _survey(site)
    assert [each["event"] for each in _events(site)].count("data changed") == 1


def test_a_damaged_state_is_an_error_reply_and_an_audit_line(make: MakeSite) -> None:
    import torch

    site = make("scaffold")
    client = open_client(site.kit, site.settings)
    _states(site).keep(0, {"method": {"control": torch.ones(3)}})
    (path,) = study_folder(site.work, site.kit.study(), site.name).glob("objects/*.safetensors")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    study = site.kit.study()
    facts = {"kind": "train", "study": study.hash, "version": VERSION, "site": "*", "round": 1}
    facts["lineage"] = {"digests": [""], "rollbacks": []}
    reply = unpack(client.answer(pack(Message(facts, {}))))
    assert reply.facts["error"] == "DamagedState"
    assert _events(site)[-1]["error"] == "DamagedState"
