"""A site's own images and labels, as the study's client of that name."""

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
    """The site's files, decoded as the study wants, with the classes the site has declared."""
    images, declared = study.images, study.site(site).annotates
    return Folder(
        **asdict(files),
        classes=tuple(name for name in study.classes if name in declared),
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
    """Labels in the study's order; a class that the site has not declared is not annotated."""
    labels = torch.zeros(len(train), len(study.classes), dtype=torch.uint8)
    known = torch.zeros(len(train), len(study.classes), dtype=torch.bool)
    columns = [study.classes.index(name) for name in train.classes]
    known[:, columns] = train.known
    labels[:, columns] = torch.where(train.known, train.labels, torch.zeros_like(train.labels))
    blank = [name for name in train.classes if not bool(known[:, study.classes.index(name)].any())]
    if blank:
        raise UserError(
            f"the study says that {site} annotates {', '.join(blank)}, but no image here has a "
            "label for it; mend the label file, or agree on another study"
        )
    whole = replace(train, labels=labels, known=known, classes=study.classes)
    return ClientData.of(whole, Holding(site, torch.arange(len(train)), known), secret)


def _secret(settings: SiteSettings) -> bytes:
    if settings.secret_file is None:
        return b""
    try:
        return Path(settings.secret_file).read_bytes().strip()
    except OSError as error:
        raise UserError(f"the site's secret_file cannot be read: {error.strerror}") from error
