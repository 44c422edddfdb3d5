"""Load a site's images and labels as the study's client of that name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from fedquilt.core.errors import UserError
from fedquilt.core.wording import counted
from fedquilt.data.allocation import Allocation, Holding
from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.source import Splits
from fedquilt.data.sources.folder.load import Folder
from fedquilt.data.validation import set_aside
from fedquilt.deploy.site.settings import SiteFiles, SiteSettings
from fedquilt.deploy.study import Study
from fedquilt.training.noise_plan import limited_to_units


def site_source(study: Study, site: str, files: SiteFiles) -> Folder:
    """Return the source of the site's files, decoded as the study says, for its classes only."""
    images, annotates = study.images, study.site(site).annotates
    return Folder(
        **asdict(files),
        classes=tuple(name for name in study.classes if name in annotates),
        size=images.size,
        channels=images.channels,
        fit=images.fit,
        window=images.window,
    )


@dataclass(frozen=True)
class SiteData:
    """A site's images for training, and those for validation and test, which may be none."""

    training: ClientData
    validation: ClientData
    test: ClientData | None = None


def load_site_data(
    study: Study,
    site: str,
    settings: SiteSettings,
    check: Callable[[MultiLabelDataset], None] = lambda train: None,
) -> SiteData:
    """Load the data as the study's client; ``check`` may raise an error for what was loaded."""
    splits = site_source(study, site, settings.data).load(image_cache(settings))
    check(splits.train)
    data = as_client(study, site, splits, _secret(settings))
    agreed = study.site(site).images
    if agreed is not None and len(data.training) > agreed:
        raise UserError(
            f"{site} has {counted(len(data.training), 'image')} to train on, and the study agreed "
            f"on at most {agreed:,}, so its updates would be refused; leave images out, or have "
            "the coordinator change the study's `images`"
        )
    return data


def image_cache(settings: SiteSettings) -> Path:
    return Path(settings.work_folder) / "cache"


def as_client(study: Study, site: str, splits: Splits, secret: bytes) -> SiteData:
    """Return the data with the study's classes; those that the site lacks are unannotated."""
    data = _with_the_studys_classes(study, splits.train)
    _require_annotations(site, splits.train.classes, data)
    everything = Holding(site, torch.arange(len(data)), data.known)
    allocation = set_aside(
        Allocation((everything,), study.classes),
        data,
        splits.is_validation,
        study.recipe.validation,
    )
    (holding,) = allocation.holdings
    test = _with_the_studys_classes(study, splits.test)
    held_out = Holding(site, torch.arange(len(test)), test.known)
    training = ClientData.of(data, holding.for_training(), secret)
    return SiteData(
        training=limited_to_units(training, study.recipe.privacy),
        validation=ClientData.of(data, holding.for_validation(), secret),
        test=ClientData.of(test, held_out, secret),
    )


def _with_the_studys_classes(study: Study, data: MultiLabelDataset) -> MultiLabelDataset:
    labels = torch.zeros(len(data), len(study.classes), dtype=torch.uint8)
    known = torch.zeros(len(data), len(study.classes), dtype=torch.bool)
    columns = [study.classes.index(name) for name in data.classes]
    known[:, columns] = data.known
    labels[:, columns] = torch.where(data.known, data.labels, torch.zeros_like(data.labels))
    return replace(data, labels=labels, known=known, classes=study.classes)


def _require_annotations(site: str, annotates: Sequence[str], data: MultiLabelDataset) -> None:
    """Raise UserError if a class that the site annotates has no label in its images."""
    blank = [name for name in annotates if not bool(data.known[:, data.classes.index(name)].any())]
    if blank:
        raise UserError(
            f"the study says that {site} annotates {', '.join(blank)}, but no image here has a "
            "label for it; fix the label file, or have the coordinator change the study's "
            "`annotates`"
        )


def _secret(settings: SiteSettings) -> bytes:
    if settings.secret_file is None:
        return b""
    try:
        return Path(settings.secret_file).read_bytes().strip()
    except OSError as error:
        raise UserError(
            f"the site's secret_file {settings.secret_file} cannot be read: {error.strerror}"
        ) from error
