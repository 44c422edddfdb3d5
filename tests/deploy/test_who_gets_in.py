"""Access: only complete, valid kits of the study's authority are accepted; no shell is given."""

from __future__ import annotations

import shutil
import socket
import ssl
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from digits_recipe import recipe_settings
from running_study import RunningStudy

from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.nvflare.certificates import Authority, read_certificate
from fedquilt.deploy.nvflare.processes import site_process
from fedquilt.deploy.nvflare.provision import provision, subjects
from fedquilt.deploy.nvflare.seal import seal
from fedquilt.deploy.nvflare.session import Session
from fedquilt.deploy.nvflare.site import check_connection, open_kit
from fedquilt.deploy.nvflare.workspace import Workspace, write_site_workspace

TRIES, CONNECTIONS = 20, 1000
TLS_ALERT = b"\x15"  # the type of the first record


@pytest.fixture
def running(consortium: RunningStudy) -> RunningStudy:
    consortium.start_all()
    return consortium


def _copy(study: RunningStudy, tmp_path: Path, name: str = "client-1") -> Kit:
    return Kit(Path(shutil.copytree(study.kits[name], tmp_path / name)))


def _expire(kit: Kit, study: RunningStudy) -> None:
    """A certificate of the right authority for the right key, valid until yesterday."""
    authority = Authority(study.folder / "kits" / "authority")
    key = read_certificate(kit.certificate).public_key()
    expired = authority.issue(subjects(study.study)["client-1"], key, days=-1)
    kit.certificate.write_bytes(expired.public_bytes(Encoding.PEM))
    seal(kit, authority)


def _refused_always(kit: Kit, study: RunningStudy) -> None:
    for _ in range(TRIES):
        with pytest.raises(UserError, match="do not accept each other"):
            check_connection(kit, study.study.server, 10)


def test_a_kit_of_the_study_is_accepted(running: RunningStudy) -> None:
    kit = open_kit(running.kits["client-1"])
    check_connection(kit, running.study.server, 10)


def test_another_authoritys_kit_is_refused(running: RunningStudy, tmp_path: Path) -> None:
    foreign = Kit(provision(running.study, tmp_path / "kits")["client-1"])
    open_kit(foreign.folder)  # valid in itself
    _refused_always(foreign, running)
    # With the real authority's certificate the site trusts the server, but not vice versa.
    shutil.copy(Kit(running.kits["client-1"]).authority, foreign.authority)
    _refused_always(foreign, running)
    with pytest.raises(UserError, match=r"altered: startup/rootCA\.pem"):
        open_kit(foreign.folder)


def test_no_certificate_is_refused(running: RunningStudy) -> None:
    address, kit = running.study.server, Kit(running.kits["client-1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(kit.authority)
    context.set_alpn_protocols(["h2"])
    for _ in range(TRIES):
        with (
            socket.create_connection((address.host, address.port), timeout=5) as plain,
            context.wrap_socket(plain, server_hostname=address.host) as line,
        ):
            assert line.recv(1) == b""  # closed without a byte


def test_a_connection_without_tls_is_refused(running: RunningStudy) -> None:
    address = running.study.server
    for _ in range(TRIES):
        with socket.create_connection((address.host, address.port), timeout=5) as plain:
            plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            with suppress(ConnectionResetError):
                assert plain.recv(1) in (b"", TLS_ALERT)  # an alert says why, and nothing else


def test_many_connections_keep_nobody_out(running: RunningStudy) -> None:
    """A thousand without a certificate: a valid kit still gets in, and memory is bounded."""
    address, kit = running.study.server, Kit(running.kits["client-1"])
    pid = int(Workspace.of_kit(Kit(running.kits["server"])).process_file.read_text())
    before = psutil.Process(pid).memory_info().rss
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            held.enter_context(socket.create_connection((address.host, address.port), timeout=10))
        check_connection(kit, address, 20)
        during = psutil.Process(pid).memory_info().rss
    assert during < 1.5 * before, (before, during)
    check_connection(kit, address, 20)


def test_an_expired_kit_is_refused_by_itself_and_by_the_server(
    running: RunningStudy, tmp_path: Path
) -> None:
    kit = _copy(running, tmp_path)
    _expire(kit, running)
    with pytest.raises(UserError, match="expired"):
        open_kit(kit.folder)
    _refused_always(kit, running)
    # FLARE's own client, started without our checks, is never registered.
    workspace = Workspace.of_site(tmp_path / "work", running.study, "client-1")
    write_site_workspace(workspace, kit, running.study, running.site_settings["client-1"])
    server_log = Workspace.of_kit(Kit(running.kits["server"])).log
    joined = server_log.read_text().count("New client client-1")
    assert "certificate has expired" in server_log.read_text()
    process = site_process(workspace, "client-1", "client_1")
    try:
        process.wait(6.0)  # a valid kit is registered within two seconds
        assert "Successfully registered" not in process.output()
        assert server_log.read_text().count("New client client-1") == joined
    finally:
        process.end()


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


def test_a_service_waits_for_its_server_and_says_how_it_is(consortium: RunningStudy) -> None:
    consortium.kill_all()
    files = consortium.files_of("client-2")

    def health(code: int) -> bool:
        return consortium.start("health", "site", "health", *files).wait(90) == code

    assert health(3), consortium.said("health")
    site = consortium.start("client-2", "site", "serve", *files)
    consortium.wait_until(lambda: "Trying again" in consortium.said("client-2"), 90, "first try")
    assert health(4), consortium.said("health")
    consortium.start_server()
    consortium.wait_until(lambda: "has joined" in consortium.said("client-2"), 120, "client-2")
    consortium.wait_until(lambda: health(0), 60, "health")
    site.terminate()
    assert site.wait(30) == 0
    assert health(3), consortium.said("health")
