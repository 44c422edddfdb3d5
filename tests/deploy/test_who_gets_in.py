"""Access: only complete, valid kits of the study's authority are accepted; no shell is given."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from digits_recipe import recipe_settings
from nvflare.lighter.utils import Identity, generate_cert, load_private_key
from running_study import RunningStudy

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.kit_files import write_site_files
from fedquilt.deploy.nvflare.processes import site_process
from fedquilt.deploy.nvflare.provision import provision
from fedquilt.deploy.nvflare.session import Session
from fedquilt.deploy.nvflare.site import check_connection, open_kit


@pytest.fixture
def running(consortium: RunningStudy) -> RunningStudy:
    consortium.start_all()
    return consortium


def _copy(study: RunningStudy, tmp_path: Path, name: str = "client-1") -> Kit:
    return Kit(Path(shutil.copytree(study.kits[name], tmp_path / name)))


def _expire(kit: Kit, study: RunningStudy) -> None:
    """A certificate of the right authority for the right key, valid until yesterday."""
    authority = json.loads((study.folder / "kits" / "authority" / "cert.json").read_text())
    old = load_pem_x509_certificate(kit.certificate.read_bytes())
    yesterday = datetime.now(UTC) - timedelta(days=1)
    expired = generate_cert(
        subject=Identity("client-1", "client_1"),
        issuer=Identity(study.study.name),
        signing_pri_key=load_private_key(authority["root_pri_key"]),
        subject_pub_key=old.public_key(),
        not_valid_before=yesterday - timedelta(days=30),
        not_valid_after=yesterday,
    )
    kit.certificate.write_bytes(expired.public_bytes(Encoding.PEM))


def test_a_kit_of_the_study_is_accepted(running: RunningStudy) -> None:
    kit = open_kit(running.kits["client-1"])
    check_connection(kit, running.study.server, 10)


def test_another_authoritys_kit_is_refused(running: RunningStudy, tmp_path: Path) -> None:
    foreign = Kit(provision(running.study, tmp_path / "kits")["client-1"])
    open_kit(foreign.folder)  # valid in itself
    with pytest.raises(UserError, match="do not accept each other"):
        check_connection(foreign, running.study.server, 10)
    # With the real authority's certificate the site trusts the server, but not vice versa.
    shutil.copy(Kit(running.kits["client-1"]).authority, foreign.authority)
    with pytest.raises(UserError, match="do not accept each other"):
        check_connection(foreign, running.study.server, 10)
    with pytest.raises(UserError, match="did not sign its certificate"):
        open_kit(foreign.folder)


def test_no_certificate_is_refused(running: RunningStudy) -> None:
    address, kit = running.study.server, Kit(running.kits["client-1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(kit.authority)
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((address.host, address.port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=address.host) as line,
    ):
        assert line.recv(1) == b""  # closed without a byte


def test_an_expired_kit_is_refused_by_itself_and_by_the_server(
    running: RunningStudy, tmp_path: Path
) -> None:
    kit = _copy(running, tmp_path)
    _expire(kit, running)
    with pytest.raises(UserError, match="expired"):
        open_kit(kit.folder)
    with pytest.raises(UserError, match="do not accept each other"):
        check_connection(kit, running.study.server, 10)
    # FLARE's own client, started without our checks, is never registered.
    write_site_files(kit, str(running.site_settings["client-1"]))
    server_log = running.kits["server"] / "fedquilt" / "flare.log"
    joined = server_log.read_text().count("New client client-1")
    assert "certificate has expired" in server_log.read_text()
    process = site_process(kit, "client-1", "client_1")
    try:
        process.wait(6.0)  # a valid kit is registered within two seconds
        assert "Successfully registered" not in process.output()
        assert server_log.read_text().count("New client client-1") == joined
    finally:
        process.end()


@pytest.mark.parametrize("file", ["study.json", "fed_client.json", "kit.json"])
def test_an_altered_kit_is_refused(running: RunningStudy, tmp_path: Path, file: str) -> None:
    kit = _copy(running, tmp_path)
    path = kit.startup / file
    path.write_text(path.read_text().replace("client-1", "client-2").replace("digits", "digitz"))
    with pytest.raises(UserError, match="tampered"):
        open_kit(kit.folder)


def test_an_added_file_or_another_key_is_refused(running: RunningStudy, tmp_path: Path) -> None:
    kit = _copy(running, tmp_path)
    (kit.startup / "extra.json").write_text("{}")
    with pytest.raises(UserError, match="tampered"):
        open_kit(kit.folder)
    other = _copy(running, tmp_path, "client-2")
    shutil.copy(Kit(running.kits["client-1"]).key, other.key)
    with pytest.raises(UserError, match="key and certificate differ"):
        open_kit(other.folder)


def test_a_kit_without_its_seal_is_refused(running: RunningStudy, tmp_path: Path) -> None:
    kit = _copy(running, tmp_path)
    kit.seal.unlink()
    with pytest.raises(UserError, match="not complete"):
        open_kit(kit.folder)


def test_altered_local_files_are_replaced(running: RunningStudy, tmp_path: Path) -> None:
    kit = _copy(running, tmp_path)
    write_site_files(kit, "site.toml")
    (kit.local / "resources.json").write_text('{"class_allow_list": ["*"]}')
    (kit.local / "authorization.json").write_text("{}")
    write_site_files(kit, "site.toml")
    settings = json.loads((kit.local / "resources.json").read_text())
    assert settings["class_allow_list"] == ["fedquilt.deploy.nvflare."]
    assert settings["allow_log_streaming"] is False
    rights = json.loads((kit.local / "authorization.json").read_text())["permissions"]
    assert rights["project_admin"]["shell_commands"] == "none"
    assert rights["project_admin"]["byoc"] == "none"


def test_the_coordinator_has_no_shell_on_a_site(running: RunningStudy) -> None:
    kit = Kit(running.kits["coordinator"])
    with Session(kit, running.study) as session:
        session.connect(30)
        assert session.connected_sites() == set(running.study.site_names)
        for target in ("client-0", "server"):
            with pytest.raises(Exception, match=r"(?i)not authorized|not permitted"):
                session._do("ls_target", target)


def test_a_site_that_finds_no_server_says_so_and_ends(tmp_path: Path) -> None:
    with RunningStudy(tmp_path, recipe_settings("fedavg")) as study:
        settings = study.site_settings["client-0"]
        settings.write_text("register_seconds = 3.0\n" + settings.read_text())
        assert study.start_site("client-0").wait(60) == 1
        assert "could not be reached within 3 s" in study.said("client-0")
