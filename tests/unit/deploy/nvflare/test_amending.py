"""A site joins a running study: proposed, signed by all, and only then in the kits."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.remote_sites import CLASSES, CallingChannel, make_study, without_validation
from support.secure_study import secure_study
from support.tiny_federation import make_federation, make_method

from fedquilt.core.errors import UserError
from fedquilt.deploy.amendment import Amendment, amendment_from, read_amendment, read_amendments
from fedquilt.deploy.audit_chain import read_events
from fedquilt.deploy.audit_log import AuditLog
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.amending import adopt, agree, check_amendments, propose
from fedquilt.deploy.nvflare.certificates import Authority, read_certificate
from fedquilt.deploy.nvflare.provision import provision, write_kit
from fedquilt.deploy.nvflare.seal import check_seal
from fedquilt.deploy.nvflare.site import open_kit
from fedquilt.deploy.server.decisions import decide
from fedquilt.deploy.server.quorum import TooFewSites
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.site.amended_study import take_over
from fedquilt.deploy.site.client import SiteClient
from fedquilt.deploy.site.memory import SiteMemory
from fedquilt.deploy.site.states import study_folder
from fedquilt.deploy.study import Study
from fedquilt.privacy.site_policy import SitePolicy

OPEN = SitePolicy(min_cell=0)
ANNOTATED = ((0, 1), (1, 2), (2, 0), (0, 1, 2))
ROUNDS = 4
EVERYONE = ("site-0", "site-1", "site-2")
PARTICIPANTS = ("server", "coordinator", *EVERYONE)


def studies(name: str = "fedavg", **rules: object) -> tuple[Study, Study]:
    method = make_method(name)
    before = make_study(method, rounds=ROUNDS, annotated=ANNOTATED[:3], **rules)
    return before, make_study(method, rounds=ROUNDS, annotated=ANNOTATED, **rules)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Kits by the hash of their study: making keys takes seconds."""
    made: dict[str, Path] = {}
    for name in ("fedavg", "scaffold", "quilt"):
        before, _ = studies(name)
        made[before.hash] = tmp_path_factory.mktemp(name) / "kits"
        if len(made) == 1:
            provision(before, made[before.hash])
        else:  # with the keys of the first study
            first = next(iter(made.values()))
            shutil.copytree(first, made[before.hash])
            authority = Authority(made[before.hash] / "authority")
            for kit in (Kit(made[before.hash] / each) for each in PARTICIPANTS):
                key = read_certificate(kit.certificate).public_key()
                write_kit(before, kit, kit.role(), authority, key)
    return made


class Amended:
    """Kits of a study, and an amendment of it."""

    def __init__(self, folder: Path, keys: dict[str, Path], before: Study, after: Study) -> None:
        self.folder, self.kits = folder, folder / "kits"
        shutil.copytree(keys[before.hash], self.kits)
        self.file = folder / "amendment.json"
        self.amendment = propose(self.kit("coordinator"), after, "more images", self.file)
        self.signed: list[Path] = []

    def kit(self, name: str) -> Kit:
        return Kit(self.kits / name)

    def sign(self, *names: str) -> None:
        self.signed += [
            agree(self.kit(name), read_amendment(self.file), self.folder) for name in names
        ]

    def adopt(self, **options: Any) -> list[Kit]:
        authority = Authority(self.kits / "authority")
        return adopt(self.file, self.signed, authority, self.kits, **options)


def test_kits_are_amended_once_all_sites_have_signed(keys: dict[str, Path], tmp_path: Path) -> None:
    before, after = studies()
    amended = Amended(tmp_path, keys, before, after)
    amended.sign("site-0", "site-2")
    with pytest.raises(UserError, match="site-1 has not agreed"):
        amended.adopt()
    assert amended.kit("server").study().hash == before.hash  # nothing was written
    amended.sign("site-1")
    names = {kit.role() for kit in amended.adopt()}
    assert names == {"server", "coordinator", *EVERYONE}
    for name in names:
        kit = amended.kit(name)
        check_seal(kit)
        assert kit.study().hash == after.hash
        (kept,) = read_amendments(kit.amendments)
        assert [each.site for each in kept.agreements] == ["site-0", "site-2", "site-1"]
    assert open_kit(amended.kits / "site-0").role() == "site-0"
    lines = amended.amendment.lines()
    assert lines[1] == "site-3 of hospital_3 joins and annotates round, square, bright"


def test_a_signature_of_another_key_or_site_is_refused(
    keys: dict[str, Path], tmp_path: Path
) -> None:
    amended = Amended(tmp_path, keys, *studies())
    amended.sign(*EVERYONE)
    one, two = (json.loads(path.read_text()) for path in amended.signed[:2])
    for forged in (
        one | {"site": "site-1"},  # its certificate is site-0's
        one | {"signature": two["signature"]},
        two | {"certificate": one["certificate"]},
        one | {"certificate": "not a certificate"},
    ):
        amended.signed[0].write_text(json.dumps(forged))
        with pytest.raises(UserError, match=r"agreement of 'site-\d' to this amendment is not"):
            amended.adopt()


def test_a_signature_is_for_one_amendment_only(keys: dict[str, Path], tmp_path: Path) -> None:
    amended = Amended(tmp_path, keys, *studies())
    amended.sign(*EVERYONE)
    proposed = json.loads(amended.file.read_text())
    proposed["after"]["sites"][-1]["annotates"] = ["round"]
    amended.file.write_text(json.dumps(proposed))
    with pytest.raises(UserError, match="is not valid"):
        amended.adopt()


def test_a_site_refuses_a_kit_of_an_amendment_that_it_has_not_signed(
    keys: dict[str, Path], tmp_path: Path
) -> None:
    amended = Amended(tmp_path, keys, *studies())
    amended.sign("site-0", "site-2")
    amended.adopt(without=["site-1"])
    kit = amended.kit("site-0")
    check_amendments(kit)
    provision(studies()[0], tmp_path / "others")
    others = {studies()[0].hash: tmp_path / "others"}
    foreign = Amended(tmp_path / "other", others, *studies())
    foreign.sign("site-0", "site-2")
    foreign.adopt(without=["site-1"])
    (kit.startup / "rootCA.pem").write_bytes(foreign.kit("site-0").authority.read_bytes())
    with pytest.raises(UserError, match="is not valid"):
        check_amendments(kit)


@pytest.mark.parametrize(
    "change",
    [
        lambda after: replace(after, sites=after.sites[1:]),
        lambda after: replace(after, sites=after.sites[:3]),
        lambda after: replace(after, classes=after.classes[::-1]),
        lambda after: replace(after, recipe=replace(after.recipe, rounds=9)),
        lambda after: replace(after, sites=(replace(after.sites[0], images=9), *after.sites[1:])),
    ],
)
def test_nothing_but_further_sites_can_be_amended(change: Any) -> None:
    before, after = studies()
    with pytest.raises(UserError, match="can only add"):
        Amendment(before, change(after), "x").check()


def test_methods_whose_survey_is_kept_and_secure_sums_cannot_be_joined() -> None:
    with pytest.raises(UserError, match="FedAwS: it asks all sites for owned"):
        Amendment(*studies("fedaws"), "x").check()
    five = ((0, 1, 2),) * 5
    before, after = (secure_study(make_method("fedavg"), annotated=five[:n]) for n in (4, 5))
    with pytest.raises(UserError):
        Amendment(before, after, "x").check()


@pytest.mark.parametrize("content", ["[]", "{}", '{"agreements": [3]}', "[" * 5000, '{"a": NaN}'])
def test_an_odd_amendment_is_an_error(content: str, tmp_path: Path) -> None:
    (tmp_path / "amendment.json").write_text(content)
    with pytest.raises(UserError):
        read_amendment(tmp_path / "amendment.json")


def sites_of(study: Study, folder: Path) -> dict[str, SiteClient]:
    clients = make_federation(annotated=ANNOTATED, rounds=ROUNDS).fitted(study.recipe.method)
    return {
        name: SiteClient(
            study,
            without_validation(clients.clients[name]),
            SiteMemory.of(study_folder(folder / name, study, name), study, OPEN, folder / name),
            OPEN,
            AuditLog(folder / name / "audit.jsonl"),
        )
        for name in study.site_names
    }


@pytest.mark.parametrize("name", ["scaffold", "quilt"])
def test_a_site_joins_from_the_next_round_on(
    keys: dict[str, Path], tmp_path: Path, name: str
) -> None:
    before, after = studies(name)
    amended = Amended(tmp_path, keys, before, after)
    run_folder = tmp_path / "run"

    def observe(record: dict[str, Any]) -> None:
        if record.get("round") == 2 and "notice" not in record:
            decide(before, run.folder, {"kind": "pause", "reason": "site-3 joins"}, "coordinator")

    channel = CallingChannel(sites_of(before, tmp_path))
    run = ServerRun(before, run_folder, channel, observe=observe)
    assert not run.run(resume=False)
    amended.sign(*EVERYONE)
    amended.adopt()
    amendments = read_amendments(amended.kit("server").amendments)
    decide(before, run.folder, {"kind": "resume", "reason": "it is here"}, "coordinator")

    with pytest.raises(UserError, match="the data have changed"):  # the server's kit is needed
        ServerRun(after, run_folder, CallingChannel({})).run(resume=True)
    for site in EVERYONE:
        log = AuditLog(tmp_path / site / "audit.jsonl")
        take_over(amended.kit(site), tmp_path / site, log)
        take_over(amended.kit(site), tmp_path / site, log)  # a second start changes nothing
        events, _ = read_events(tmp_path / site / "audit.jsonl")
        (told,) = [each for each in events if each["event"] == "amended"]
        assert (told["joining"], told["reason"]) == (["site-3"], "more images")
    everyone = sites_of(after, tmp_path)
    some = {site: client for site, client in everyone.items() if site != "site-3"}
    with pytest.raises(TooFewSites, match="site-3 joins the study and has not answered"):
        ServerRun(after, run_folder, CallingChannel(some), amendments=amendments).run(resume=True)
    run = ServerRun(after, run_folder, CallingChannel(everyone), amendments=amendments)
    assert run.run(resume=True)
    cohorts = [record["cohort"] for record in run.folder.history.read()]
    assert cohorts == [list(EVERYONE)] * 2 + [[*EVERYONE, "site-3"]] * 2
    (event,) = [
        each for each in read_events(run_folder / "audit.jsonl")[0] if each["event"] == "amended"
    ]
    assert event["joining"] == ["site-3"]
    assert event["agreed"] == list(EVERYONE)
    result = json.loads((run_folder / "result.json").read_text())
    assert result["contributions"]["site-3"] == {"rounds": 2, "first": 3, "last": 4}
    assert run.folder.read_recipe().hash == before.recipe.hash


def test_a_site_that_takes_part_has_to_agree(keys: dict[str, Path], tmp_path: Path) -> None:
    before, after = studies()
    amended = Amended(tmp_path, keys, before, after)
    amended.sign("site-0", "site-2")
    amended.adopt(without=["site-1"])
    amendments = read_amendments(amended.kit("server").amendments)
    run = ServerRun(before, tmp_path / "run", CallingChannel(sites_of(before, tmp_path)))
    assert run.run(resume=False)
    with pytest.raises(UserError, match="site-1 has not agreed to the amendment and takes part"):
        ServerRun(after, tmp_path / "run", run._channel, amendments=amendments).run(resume=True)


def test_amendments_are_written_and_read(keys: dict[str, Path], tmp_path: Path) -> None:
    amended = Amended(tmp_path, keys, *studies())
    found = amendment_from(json.loads(amended.file.read_text()))
    assert found.text == amended.amendment.text
    assert found.joining == ("site-3",)
    assert found.after.classes == CLASSES
