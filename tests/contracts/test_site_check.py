"""For every method, ``fedquilt site check`` lists exactly what then leaves the site."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from support.checked_studies import FLOOR, SITE, Hospitals, audit_log, kit_of
from support.remote_sites import CallingChannel, make_engine
from support.tiny_federation import METHOD_NAMES, make_method

from fedquilt.core.errors import UserError
from fedquilt.deploy.server.run import ServerRun
from fedquilt.deploy.site.check import UNKNOWN, SiteCheck, check_site, leaving_table
from fedquilt.deploy.site.data import load_site_data
from fedquilt.deploy.site.dry_run import dry_run
from fedquilt.deploy.study import Study
from fedquilt.privacy.disclosure_report import WEIGHTS
from fedquilt.privacy.ledger import LEDGER_FILE, PrivacyLedger
from fedquilt.training.rounds import run_rounds, start_server

BOUNDS = ("centralised", "full-labels")  # need labels or images that no site sends
SENT = ("sent", "train")
ROUNDS = {"once": [1], "every round": [3], "most rounds": [2], "some rounds": [1, 2]}  # of three
# Some parts leave only with certain settings.
CASES = [(name, {}) for name in METHOD_NAMES if name not in BOUNDS]
CASES.append(("fssl", {"labelled_weight": 0.5}))
every_case = pytest.mark.parametrize(
    ("name", "settings"), CASES, ids=["-".join([name, *given]) for name, given in CASES]
)


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Hospitals:
    return Hospitals(tmp_path_factory.mktemp("hospitals"))


@every_case
def test_what_leaves_is_what_the_check_listed(
    name: str, settings: dict[str, object], hospitals: Hospitals, tmp_path: Path
) -> None:
    study = hospitals.study(make_method(name, **settings))
    found = check_site(kit_of(study, tmp_path / "kit"), hospitals.settings[SITE])
    listed = {row.part: row for row in found.leaving}
    assert len(listed) == len(found.leaving)
    run(study, hospitals, tmp_path)
    sent = [line for line in audit_log(tmp_path) if line["event"] == "sent"]
    assert [line["kind"] for line in sent] == ["survey", "train", "train", "train"]
    for line in sent:
        for part, facts in line["parts"].items():
            row = listed[part]
            assert (row.when == "once") == (line["kind"] == "survey"), part
            if row.when != "some rounds":
                assert (row.kind, row.numbers) == (facts["kind"], facts["numbers"]), part
                assert row.bytes == facts["bytes"], part
    assert set(listed) == {part for line in sent for part in line["parts"]}
    for part, row in listed.items():
        rounds = sum(part in line["parts"] for line in sent)
        assert rounds in ROUNDS[row.when], part


def run(study: Study, hospitals: Hospitals, folder: Path) -> None:
    engine = make_engine(study, CallingChannel(hospitals.sites(study, folder)), folder)
    method = study.recipe.method
    server = start_server(method, study.task, engine)
    assert len(list(run_rounds(method, study.task, engine, server))) == 3


@every_case
def test_every_part_is_printed(
    name: str, settings: dict[str, object], hospitals: Hospitals, tmp_path: Path
) -> None:
    study = hospitals.study(make_method(name, **settings))
    found = check_site(kit_of(study, tmp_path), hospitals.settings[SITE])
    lines = printed(found)
    assert found.is_ok
    assert f"nothing about fewer than {FLOOR} patients leaves" in found.lines()
    for row in found.leaving:
        (cells,) = (line for line in lines if line[0] == row.part)
        assert len(cells) == 8
        assert cells[5] == "plain"
        assert cells[1] == row.when
        if row.when == "some rounds":
            assert cells[2:5] == [UNKNOWN] * 3
        else:
            assert cells[2:5] == [row.kind, f"{row.numbers:,}", f"{row.bytes:,}"]
        assert "None" not in cells
        assert "" not in cells
    assert found.to_dict()["ok"] is True


def printed(found: SiteCheck) -> list[list[str]]:
    page = io.StringIO()
    Console(file=page, width=300).print(leaving_table(found))
    rows = [line for line in page.getvalue().splitlines() if line.startswith("\u2502")]
    return [[cell.strip() for cell in line.strip("\u2502").split("\u2502")] for line in rows]


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_are_refused(name: str, hospitals: Hospitals) -> None:
    with pytest.raises(UserError, match="a bound for simulations"):
        hospitals.study(make_method(name))


def test_parts_of_validation_are_listed_and_a_policy_may_refuse_them(
    hospitals: Hospitals, tmp_path: Path
) -> None:
    study = hospitals.study(make_method("fedavg"), validation={"share": 0.3})
    settings = hospitals.settings[SITE]
    found = check_site(kit_of(study, tmp_path / "kit"), settings)
    rows = {row.part: row for row in found.leaving if row.when == "validated rounds"}
    assert set(rows) == {"validation_auc", "validation_loss"}
    assert all((row.kind, row.numbers, row.bytes) == ("Mean", 3, 48) for row in rows.values())
    policy = replace(settings.policy, may_leave=("annotators", *WEIGHTS, "training_loss"))
    refusing = check_site(kit_of(study, tmp_path / "other"), replace(settings, policy=policy))
    refused = {row.part: row.refused for row in refusing.leaving if row.refused}
    assert set(refused) == {"validation_auc", "validation_loss", "site_report"}
    assert refusing.is_ok  # it takes part without them


def test_parts_of_the_end_are_listed_with_their_true_sizes(
    hospitals: Hospitals, tmp_path: Path
) -> None:
    evaluation = {"decisions": {"rule": "youden"}}
    study = hospitals.study(make_method("fedavg"), validation={"share": 0.3}, evaluation=evaluation)
    found = check_site(kit_of(study, tmp_path / "kit"), hospitals.settings[SITE])
    rows = {row.part: row for row in found.leaving if row.when == "at the end"}
    assert set(rows) == {"score_histograms", "site_report"}
    sites = hospitals.sites(study, tmp_path)
    ServerRun(study, tmp_path / "run", CallingChannel(sites)).run(resume=False)
    sent = {line["kind"]: line["parts"] for line in audit_log(tmp_path) if line["event"] == "sent"}
    ledger = PrivacyLedger(tmp_path / SITE / LEDGER_FILE)
    assert {part for each in ledger.charges for part in each.parts} == {
        part for parts in sent.values() for part in parts
    }
    for kind in ("histograms", "report"):
        ((part, facts),) = sent[kind].items()
        row = rows[part]
        assert (row.kind, row.numbers, row.bytes) == tuple(
            facts[key] for key in ("kind", "numbers", "bytes")
        )


PRIVATE = {"positive_weight": "none", "weighting": "uniform", "head_rows": "annotators"}


def test_noise_is_listed_with_its_cost(hospitals: Hospitals, tmp_path: Path) -> None:
    budget = {"epsilon": 3.0, "delta": 1e-3}
    settings = hospitals.settings[SITE]
    of_steps = hospitals.study(
        make_method("fedavg-pl", **PRIVATE), privacy=budget | {"training": True}
    )
    found = check_site(kit_of(of_steps, tmp_path / "steps"), settings)
    said = "\n".join(found.lines())
    assert found.is_ok
    assert "noise: epsilon 3 at delta 0.001 for one image, over the whole study" in said
    assert "spent so far at this site: epsilon 0; after this study: 3" in said
    rows = {cells[0]: cells for cells in printed(found)}
    assert rows["body"][5] == rows["head"][5] == "plain, with noise"
    assert rows["annotators"][5] == "plain"

    parts = budget | {"parts": ["prototypes"], "releases": 2}
    of_parts = hospitals.study(make_method("fedmlp"), privacy=parts)
    found = check_site(kit_of(of_parts, tmp_path / "parts"), settings)
    said = "\n".join(found.lines())
    assert "it leaves in 2 of 3 rounds and is not sent otherwise" in said
    assert "the weights, and all other parts, leave without noise" in said
    rows = {cells[0]: cells for cells in printed(found)}
    assert rows["prototypes"][5] == "plain, with noise"
    assert rows["body"][5] == "plain"
    assert found.to_dict()["privacy"]["spent_after_this_study"] == pytest.approx(3.0, abs=0.01)


def test_a_policy_limits_noise_before_a_study_begins(hospitals: Hospitals, tmp_path: Path) -> None:
    settings = hospitals.settings[SITE]
    strict = replace(settings, policy=replace(settings.policy, max_epsilon=2.0))
    noise = {"epsilon": 3.0, "delta": 1e-3, "training": True}
    study = hospitals.study(make_method("fedavg-pl", **PRIVATE), privacy=noise)
    found = check_site(kit_of(study, tmp_path / "much"), strict)
    assert not found.is_ok
    assert "epsilon 3, and its policy allows 2 (max_epsilon)" in "\n".join(found.lines())
    without = hospitals.study(make_method("fedavg-pl", **PRIVATE))
    found = check_site(kit_of(without, tmp_path / "none"), strict)
    assert not found.is_ok
    assert "the study adds no noise" in "\n".join(found.lines())
    assert "noise: none, so nothing is proven" in "\n".join(found.lines())


def test_delta_has_to_be_far_below_one_by_the_images(hospitals: Hospitals) -> None:
    noise = {"epsilon": 3.0, "delta": 0.05, "training": True}
    study = hospitals.study(make_method("fedavg-pl", **PRIVATE), privacy=noise)
    with pytest.raises(UserError, match=r"privacy\.delta = 0\.05 allows to publish one image"):
        load_site_data(study, SITE, hospitals.settings[SITE])


@every_case
def test_a_dry_run_sends_the_parts_and_bytes_of_a_first_round(
    name: str, settings: dict[str, object], hospitals: Hospitals, tmp_path: Path
) -> None:
    study = hospitals.study(make_method(name, **settings))
    kit = kit_of(study, tmp_path)
    before = files_in(tmp_path)
    tried = dry_run(kit, hospitals.settings[SITE])
    assert files_in(tmp_path) == before
    run(study, hospitals, tmp_path)
    first = next(line for line in audit_log(tmp_path) if (line["event"], line.get("kind")) == SENT)
    assert tried.parts == first["parts"]
    # The facts of a real reply are longer by study, site and version.
    assert 0 < first["bytes"] - tried.message_bytes < 400
    assert min(tried.step_seconds, tried.judge_seconds, tried.memory_mb) > 0
    assert (tried.steps, tried.judged_images) == (3, 20)  # 20 images in batches of 8


def files_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}
