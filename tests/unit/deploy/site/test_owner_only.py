"""What a site writes can be read by its owner only."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.site_folder import make_site_folder

from fedquilt.core.errors import UserError
from fedquilt.deploy.site.check import check_site
from fedquilt.deploy.site.settings import open_work_folder, read_site_settings


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_check_makes_the_work_folder_its_owners_only(tmp_path: Path) -> None:
    site = make_site_folder(tmp_path, "fedavg")
    assert check_site(site.kit, read_site_settings(site.settings)).images == 8
    assert _mode(site.work) == 0o700
    assert list((site.work / "cache").glob("*.u8"))


def test_an_open_work_folder_is_closed(tmp_path: Path) -> None:
    site = make_site_folder(tmp_path, "fedavg")
    site.work.mkdir()
    site.work.chmod(0o755)
    assert open_work_folder(read_site_settings(site.settings)) == site.work
    assert _mode(site.work) == 0o700


def test_a_work_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    site = make_site_folder(tmp_path, "fedavg")
    site.work.write_text("a file")
    with pytest.raises(UserError, match="choose another one in"):
        open_work_folder(read_site_settings(site.settings))
