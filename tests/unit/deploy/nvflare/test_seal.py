"""A kit with any file added, altered, linked or missing is refused by name, and nothing is run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from support.remote_sites import make_study
from support.tiny_federation import make_method
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.core.errors import UserError
from fedquilt.deploy.kit import COORDINATOR, SERVER, Kit
from fedquilt.deploy.nvflare.certificates import Authority, read_certificate
from fedquilt.deploy.nvflare.provision import provision, subjects
from fedquilt.deploy.nvflare.seal import check_seal, seal

CopyOf = Callable[[str], Kit]


def _refusal(kit: Kit) -> str:
    """Return what ``fedquilt site check`` says; the kit is checked before the site's settings."""
    result = CliRunner().invoke(app, ["site", "check", str(kit.folder), "no-such.toml"])
    assert result.exit_code == 1
    return " ".join(result.output.split())


def test_a_kit_is_accepted_as_it_was_made(kits: Path) -> None:
    for name in (SERVER, COORDINATOR, "site-0"):
        check_seal(Kit(kits / name))
    assert {path.name for path in (kits / "site-0").iterdir()} == {"startup"}


def test_log_settings_with_code_are_refused(copy_of: CopyOf, tmp_path: Path) -> None:
    kit, proof = copy_of("site-0"), tmp_path / "was-run"
    (kit.folder / "local").mkdir()
    handler = {"()": "pathlib.Path.touch", "self": str(proof)}
    content = {"version": 1, "handlers": {"code": handler}}
    (kit.folder / "local" / "log_config.json.default").write_text(json.dumps(content))
    assert "additional: local/log_config.json.default. Nothing in it was run" in _refusal(kit)
    assert not proof.exists()


def test_a_module_in_the_kits_root_is_refused(copy_of: CopyOf, tmp_path: Path) -> None:
    kit, proof = copy_of("site-0"), tmp_path / "was-run"
    (kit.folder / "msgpack.py").write_text(f"open({str(proof)!r}, 'w')")
    assert "additional: msgpack.py." in _refusal(kit)
    assert not proof.exists()


def test_a_file_in_a_folder_of_any_depth_is_refused(copy_of: CopyOf) -> None:
    kit = copy_of("site-0")
    deep = kit.startup / "a" / "b"
    deep.mkdir(parents=True)
    (deep / "c.json").write_text("{}")
    assert "additional: startup/a/b/c.json." in _refusal(kit)


def test_links_are_refused(copy_of: CopyOf, tmp_path: Path) -> None:
    kit = copy_of("site-0")
    same = tmp_path / "study.json"
    shutil.move(kit.study_file, same)
    kit.study_file.symlink_to(same)  # the content is the sealed one: for now
    (kit.folder / "local").symlink_to(tmp_path)
    said = _refusal(kit)
    assert "links or special files: local, startup/study.json;" in said
    assert "missing: startup/study.json." in said


@pytest.mark.parametrize("file", ["study.json", "kit.json", "client.crt", "rootCA.pem"])
def test_an_altered_file_is_refused(copy_of: CopyOf, file: str) -> None:
    kit = copy_of("site-0")
    path = kit.startup / file
    path.write_text(path.read_text() + "\n")
    assert f"altered: startup/{file}." in _refusal(kit)


def test_a_missing_file_is_refused(copy_of: CopyOf) -> None:
    kit = copy_of("site-0")
    kit.study_file.unlink()
    assert "missing: startup/study.json." in _refusal(kit)


def test_many_names_are_cut(copy_of: CopyOf) -> None:
    kit = copy_of("site-0")
    for number in range(12):
        (kit.folder / f"{number:02d}").touch()
    assert "08, 09 and 2 more." in _refusal(kit)


def test_only_servers_and_coordinators_have_a_folder_of_their_own(copy_of: CopyOf) -> None:
    for name in (SERVER, COORDINATOR, "site-0"):
        kit = copy_of(name)
        kit.work.mkdir()
        (kit.work / "flare.log").touch()
    check_seal(Kit(kit.folder.parent / SERVER))
    check_seal(Kit(kit.folder.parent / COORDINATOR))
    assert "additional: fedquilt/flare.log." in _refusal(kit)
    server = Kit(kit.folder.parent / SERVER)
    shutil.rmtree(server.work)
    server.work.symlink_to("/")
    with pytest.raises(UserError, match="links or special files: fedquilt"):
        check_seal(server)


def test_another_key_or_seal_is_refused(copy_of: CopyOf, kits: Path, tmp_path: Path) -> None:
    kit = copy_of("site-0")
    shutil.copy(Kit(kits / "site-1").key, kit.key)
    assert "key and certificate differ" in _refusal(kit)
    foreign = Authority.create(tmp_path / "foreign", "tiny")
    kit = copy_of("site-1")
    seal(kit, foreign)
    assert "its authority did not sign its seal" in _refusal(kit)
    shutil.copy(foreign.certificate_file, kit.authority)
    seal(kit, foreign)
    assert "its authority did not sign its certificate" in _refusal(kit)


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{}", "[" * 5000, '{"format": 2, "files": [], "signature": ""}'),
        '{"format": 2, "files": {"a": 1}, "signature": ""}',
    ],
    ids=["empty", "list", "nothing", "deep", "no names", "no hash"],
)
def test_a_damaged_seal_is_refused(copy_of: CopyOf, content: str) -> None:
    kit = copy_of("site-0")
    kit.seal.write_text(content)
    assert "is not complete" in _refusal(kit)


def test_a_kit_of_an_earlier_fedquilt_is_refused(copy_of: CopyOf) -> None:
    kit = copy_of("site-0")
    content = json.loads(kit.seal.read_text())
    kit.seal.write_text(json.dumps({key: content[key] for key in ("files", "signature")}))
    assert "made by an earlier fedquilt" in _refusal(kit)


def _issue(kit: Kit, kits: Path, days: float) -> None:
    authority = Authority(kits / "authority")
    subject = subjects(make_study(make_method("fedavg")))["site-0"]
    key = read_certificate(kit.certificate).public_key()
    issued = authority.issue(subject, key, days=days)
    kit.certificate.write_bytes(issued.public_bytes(Encoding.PEM))
    seal(kit, authority)


def test_an_expired_kit_says_since_when(copy_of: CopyOf, kits: Path) -> None:
    kit = copy_of("site-0")
    _issue(kit, kits, days=-1)
    assert "has expired: its certificate was valid until" in _refusal(kit)


def test_a_slow_clock_is_not_told_expired(copy_of: CopyOf, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import UTC, datetime

    class SlowClock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # noqa: ARG003
            return datetime(2020, 1, 1, tzinfo=UTC)

    monkeypatch.setattr("fedquilt.deploy.nvflare.seal.datetime", SlowClock)
    said = _refusal(copy_of("site-0"))
    assert "is not valid yet" in said
    assert "this machine's clock says 2020-01-01 00:00 UTC; set the clock, it is slow" in said


def test_keys_can_be_read_by_their_owner_only(kits: Path) -> None:
    keys = [Kit(kits / "site-0").key, Kit(kits / SERVER).key, kits / "authority" / "authority.key"]
    assert [path.stat().st_mode & 0o777 for path in keys] == [0o600] * 3
    assert (kits / "authority").stat().st_mode & 0o777 == 0o700


def test_kits_are_not_written_over_others(kits: Path) -> None:
    with pytest.raises(UserError, match="is not empty"):
        provision(make_study(make_method("fedavg")), kits)


def test_a_files_name_cannot_write_to_the_terminal(copy_of: CopyOf) -> None:
    kit = copy_of("site-0")
    (kit.folder / "\x1b[2K\nok").touch()
    assert r"additional: \u001b[2K\nok." in _refusal(kit)
