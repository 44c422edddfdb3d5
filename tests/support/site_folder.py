"""A site's folder on disk: a few image files, labels, site.toml, and a kit without its keys."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from PIL import Image
from support.remote_sites import make_study
from support.tiny_federation import make_method

from fedquilt.core.atomic_files import write_json
from fedquilt.core.version import VERSION
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.study import Study

IMAGES = 8


@dataclass(frozen=True)
class SiteFolder:
    """Where the site's files are."""

    folder: Path
    kit: Kit
    name: str

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def labels(self) -> Path:
        return self.folder / "labels.csv"

    @property
    def settings(self) -> Path:
        return self.folder / "site.toml"

    @property
    def work(self) -> Path:
        return self.folder / "fedquilt-site"

    @property
    def audit_log(self) -> Path:
        return self.work / "audit.jsonl"


def make_site_folder(folder: Path, method: str) -> SiteFolder:
    """Write a site of the tiny study with eight training images, half of them positive."""
    study = make_study(make_method(method))
    site = SiteFolder(folder / "site", unsealed_kit(study, "site-0", folder / "kit"), "site-0")
    site.images.mkdir(parents=True)
    classes = study.site("site-0").annotates
    with site.labels.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "split", *classes])
        for number in range(IMAGES + 1):
            name = f"{number}.png"
            Image.new("L", (8, 8), 20 * number).save(site.images / name)
            split = "train" if number < IMAGES else "test"
            writer.writerow([name, split, *([number % 2] * len(classes))])
    site.settings.write_text(
        '[data]\nfolder = "images"\nlabels = "labels.csv"\nsplit_column = "split"\n'
        "[policy]\nmin_cell = 1\n"
    )
    return site


def unsealed_kit(study: Study, name: str, folder: Path) -> Kit:
    kit = Kit(folder)
    kit.startup.mkdir(parents=True)
    write_json(kit.study_file, study.to_dict())
    write_json(kit.card, {"role": name, "study": study.name, "fedquilt": VERSION})
    return kit
