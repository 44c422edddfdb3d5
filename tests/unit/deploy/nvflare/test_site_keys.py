"""A site makes its own key; what travels to the coordinator and back holds no secret."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import Result
from cryptography.hazmat.primitives.serialization import Encoding
from support.remote_sites import make_study
from support.tiny_federation import make_method
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import COORDINATOR, SERVER, Kit
from fedquilt.deploy.nvflare.certificates import Authority, new_key, read_certificate
from fedquilt.deploy.nvflare.provision import provision, subjects
from fedquilt.deploy.nvflare.seal import check_seal, expiry_note, seal
from fedquilt.deploy.nvflare.site_keys import accept, approve, make_request, renew
from fedquilt.deploy.study import Study


@pytest.fixture
def study() -> Study:
    return make_study(make_method("fedavg"))


@pytest.fixture
def authority(study: Study, tmp_path: Path) -> Authority:
    provision(study, tmp_path / "kits", with_site_keys=False)
    return Authority(tmp_path / "kits" / "authority")


def _run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def _fingerprint(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return str(re.findall(r"(?:[0-9a-f]{4} ){9}[0-9a-f]{4}", result.output)[-1])


def test_the_whole_walk(study: Study, tmp_path: Path) -> None:
    write_json(tmp_path / "study.json", study.to_dict())
    kits, keys = tmp_path / "kits", tmp_path / "keys"
    made = _run("deploy", "provision", tmp_path / "study.json", "--out", kits)
    assert "site-0 hospital_0, site-1 hospital_1" in made.output
    assert {path.name for path in kits.iterdir()} == {SERVER, COORDINATOR, "authority"}
    asked = _run("site", "request", "site-0", "hospital_0", "--out", keys)
    signed = _run(
        *("deploy", "approve", tmp_path / "study.json", keys / "site-0.csr", "--out", kits),
        *("--authority", kits / "authority"),
    )
    assert _fingerprint(signed) == _fingerprint(asked)
    kit = Kit(kits / "site-0")
    assert not kit.key.exists()
    sent = b"".join(path.read_bytes() for path in (*kit.startup.iterdir(), keys / "site-0.csr"))
    assert b"PRIVATE KEY" not in sent
    with pytest.raises(UserError, match="has no private key yet"):
        check_seal(kit)
    taken = _run("site", "accept", kit.folder, "--key", keys / "site-0.key")
    assert f"the agreement: {study.hash[:16]}" in taken.output
    assert _fingerprint(taken) != _fingerprint(asked)  # the authority's
    check_seal(kit)
    assert kit.key.stat().st_mode & 0o777 == 0o600
    assert (keys / "site-0.key").stat().st_mode & 0o777 == 0o600


def test_demo_kits_say_that_they_are(study: Study, tmp_path: Path) -> None:
    write_json(tmp_path / "study.json", study.to_dict())
    command = ("deploy", "provision", tmp_path / "study.json", "--out", tmp_path / "kits")
    made = _run(*command, "--demo-kits")
    assert "for demonstrations only" in made.output
    check_seal(Kit(tmp_path / "kits" / "site-2"))


def test_a_key_is_not_overwritten(tmp_path: Path) -> None:
    key, _, _ = make_request("north", "North", tmp_path)
    before = key.read_bytes()
    with pytest.raises(UserError, match="already exists"):
        make_request("north", "North", tmp_path)
    assert key.read_bytes() == before


@pytest.mark.parametrize("name", ["North", "../x", "", "a b"])
def test_names_are_those_of_a_study(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give both as in the study file"):
        make_request(name, "North", tmp_path)


@pytest.mark.parametrize(
    ("site", "organisation", "reason"),
    [
        ("site-9", "hospital_0", "the study has no site 'site-9'"),
        ("site-0", "hospital_1", "knows it as a site of hospital_0"),
        ("server", "coordinator", "the study has no site 'server'"),
    ],
)
def test_only_sites_of_the_study_are_approved(
    site: str, organisation: str, reason: str, study: Study, authority: Authority, tmp_path: Path
) -> None:
    _, request, _ = make_request(site, organisation, tmp_path / "keys")
    with pytest.raises(UserError, match=reason):
        approve(study, request, authority, tmp_path / "kits")
    assert not (tmp_path / "kits" / "site-0").exists()


def test_altered_requests_are_refused(study: Study, authority: Authority, tmp_path: Path) -> None:
    _, request, _ = make_request("site-0", "hospital_0", tmp_path / "keys")
    content = request.read_bytes()
    for altered in (b"", content[:100], content.replace(content[200:210], b"AAAAAAAAAA")):
        request.write_bytes(altered)
        with pytest.raises(UserError, match="is not a request of a site"):
            approve(study, request, authority, tmp_path / "kits")


def test_a_site_is_approved_once(study: Study, authority: Authority, tmp_path: Path) -> None:
    for number in range(2):
        _, request, _ = make_request("site-0", "hospital_0", tmp_path / str(number))
        if number == 0:
            approve(study, request, authority, tmp_path / "kits")
    with pytest.raises(UserError, match="site-0 has a certificate"):
        approve(study, request, authority, tmp_path / "kits")


def test_another_key_is_not_accepted(study: Study, authority: Authority, tmp_path: Path) -> None:
    _, request, _ = make_request("site-0", "hospital_0", tmp_path / "keys")
    kit, _ = approve(study, request, authority, tmp_path / "kits")
    new_key(tmp_path / "other.key")
    with pytest.raises(UserError, match="was made for another key"):
        accept(kit.folder, tmp_path / "other.key")
    assert not kit.key.exists()


def _nearly_expired(kit: Kit, study: Study, authority: Authority) -> None:
    key = read_certificate(kit.certificate).public_key()
    issued = authority.issue(subjects(study)[kit.role()], key, days=10.5)
    kit.certificate.write_bytes(issued.public_bytes(Encoding.PEM))
    seal(kit, authority)


def test_a_renewed_kit_keeps_its_key(study: Study, authority: Authority, tmp_path: Path) -> None:
    key, request, _ = make_request("site-0", "hospital_0", tmp_path / "keys")
    kit, _ = approve(study, request, authority, tmp_path / "kits")
    _nearly_expired(kit, study, authority)
    at_site, _ = accept(Path(shutil.copytree(kit.folder, tmp_path / "at-site")), key)
    assert "expires in 10 days" in str(expiry_note(at_site))
    end = renew(kit, authority)  # without the private key
    assert end - datetime.now(UTC) > timedelta(days=359)
    renewed, _ = accept(Path(shutil.copytree(kit.folder, tmp_path / "renewed")), key)
    check_seal(renewed)
    assert expiry_note(renewed) is None
    server = Kit(tmp_path / "kits" / SERVER)
    _nearly_expired(server, study, authority)
    renew(server, authority)
    check_seal(server)
    names = read_certificate(server.certificate).extensions
    assert "localhost" in str(names)


def test_only_the_studys_authority_renews(
    study: Study, authority: Authority, tmp_path: Path
) -> None:
    foreign = Authority.create(tmp_path / "foreign", study.name)
    with pytest.raises(UserError, match="is not a kit of the authority"):
        renew(Kit(tmp_path / "kits" / SERVER), foreign)
    with pytest.raises(UserError, match="is not the folder of a study's authority"):
        Authority(tmp_path).sign("x")
    check_seal(Kit(tmp_path / "kits" / SERVER))


def test_a_certificate_does_not_outlive_its_authority(
    study: Study, authority: Authority, copy_of: Callable[[str], Kit]
) -> None:
    key = read_certificate(copy_of("site-0").certificate).public_key()
    issued = authority.issue(subjects(study)["site-0"], key, days=9999)
    root = read_certificate(authority.certificate_file)
    assert issued.not_valid_after_utc == root.not_valid_after_utc
    assert json.loads(Kit(authority.folder.parent / SERVER).seal.read_text())["format"] == 2
