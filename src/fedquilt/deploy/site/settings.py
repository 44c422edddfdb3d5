"""SiteSettings: the content of a site's site.toml, which never leaves the site."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import parse_toml
from fedquilt.core.settings import read
from fedquilt.data.label_files.values import Uncertain
from fedquilt.privacy.site_policy import SitePolicy

SITE_LOG = "site.log"  # in the work folder


@dataclass(frozen=True, kw_only=True)
class SiteFiles:
    """Where the site's images and labels are; the study says how images are decoded."""

    folder: str
    labels: str  # the CSV file
    image_column: str = "image"
    patient_column: str | None = None
    split_column: str | None = None  # train rows are trained on, val rows validate
    ignore_columns: tuple[str, ...] = ()
    uncertain: Uncertain = "ignore"
    label_names: str | None = None  # TOML file that maps the site's label names to the study's
    test_share: float = 0.2  # held out for the site itself, if there is no split column
    split_seed: int = 0


@dataclass(frozen=True, kw_only=True)
class SiteSettings:
    """Data, policy and local settings of one site."""

    data: SiteFiles
    policy: SitePolicy = SitePolicy()
    secret_file: str | None = None  # a key that the sites share and the server does not know
    sums_key: str | None = None  # the file that `fedquilt site key` made, for secure sums
    work_folder: str = "fedquilt-site"  # states between rounds, decoded images, logs
    device: str = "cpu"
    register_seconds: float = 60.0  # time to join, after which the site stops with an error


def open_work_folder(settings: SiteSettings) -> Path:
    """Create the work folder and let only its owner in: it holds decoded images and states."""
    work = Path(settings.work_folder)
    try:
        work.mkdir(mode=0o700, parents=True, exist_ok=True)
        if work.stat().st_mode & 0o077:
            work.chmod(0o700)
    except OSError as error:
        raise UserError(
            f"the site's work_folder {work} cannot be made a folder that only its owner can read "
            f"({error.strerror}); choose another one in site.toml"
        ) from error
    return work


def read_site_settings(path: Path) -> SiteSettings:
    """Read site.toml; relative paths in it start at its folder."""
    try:
        given = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"the site's settings {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"the site's settings {path} are not valid TOML: {error}") from error
    settings: SiteSettings = read(SiteSettings, given, "site", {})
    here = path.resolve().parent

    def absolute(name: str | None) -> str | None:
        return None if name is None else str(here / name)

    files = settings.data
    return replace(
        settings,
        data=replace(
            files,
            folder=str(here / files.folder),
            labels=str(here / files.labels),
            label_names=absolute(files.label_names),
        ),
        secret_file=absolute(settings.secret_file),
        sums_key=absolute(settings.sums_key),
        work_folder=str(here / settings.work_folder),
    )
