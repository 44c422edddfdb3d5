"""Load a site's images and labels as the study's client of that name."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import torch

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Holding
from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.sources.folder.load import Folder
from fedquilt.deploy.site.settings import SiteFiles, SiteSettings
from fedquilt.deploy.study import Study


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


def load_site_data(study: Study, site: str, settings: SiteSettings) -> ClientData:
    cache = Path(settings.work_folder) / "cache"
    train = site_source(study, site, settings.data).load(cache).train
    return as_client(study, site, train, _secret(settings))


def as_client(study: Study, site: str, train: MultiLabelDataset, secret: bytes) -> ClientData:
    """Return the data with the study's classes; those that the site lacks are unannotated."""
    labels = torch.zeros(len(train), len(study.classes), dtype=torch.uint8)
    known = torch.zeros(len(train), len(study.classes), dtype=torch.bool)
    columns = [study.classes.index(name) for name in train.classes]
    known[:, columns] = train.known
    labels[:, columns] = torch.where(train.known, train.labels, torch.zeros_like(train.labels))
    blank = [name for name in train.classes if not bool(known[:, study.classes.index(name)].any())]
    if blank:
        raise UserError(
            f"the study says that {site} annotates {', '.join(blank)}, but no image here has a "
            "label for it; fix the label file, or have the coordinator change the study's "
            "`annotates`"
        )
    complete = replace(train, labels=labels, known=known, classes=study.classes)
    return ClientData.of(complete, Holding(site, torch.arange(len(train)), known), secret)


def _secret(settings: SiteSettings) -> bytes:
    if settings.secret_file is None:
        return b""
    try:
        return Path(settings.secret_file).read_bytes().strip()
    except OSError as error:
        raise UserError(
            f"the site's secret_file {settings.secret_file} cannot be read: {error.strerror}"
        ) from error
