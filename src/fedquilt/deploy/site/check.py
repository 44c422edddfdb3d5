"""check_site(): checks a site's data against the study and lists what would leave the site."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rich.table import Table
from rich.text import Text

from fedquilt.core.wording import counted
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.secure.site_key import open_key
from fedquilt.deploy.shared_thresholds import fits_at_sites, reports_at_sites
from fedquilt.deploy.site.data import SiteData, load_site_data
from fedquilt.deploy.site.judge import reported_images
from fedquilt.deploy.site.noise import Budget
from fedquilt.deploy.site.noise_check import NoiseCheck, check_noise
from fedquilt.deploy.site.settings import SiteSettings, open_work_folder
from fedquilt.deploy.site.sum_check import SumCheck, check_sums
from fedquilt.deploy.study import Study
from fedquilt.privacy.disclosure_report import LeavingPart, judged_parts, what_would_leave
from fedquilt.privacy.ledger import LEDGER_FILE, PrivacyLedger
from fedquilt.privacy.score_histograms import PART as HISTOGRAMS_PART
from fedquilt.privacy.score_histograms import expected_histograms
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.privacy.site_report import expected_report
from fedquilt.privacy.site_validation import expected_validation

UNKNOWN = "not known yet"  # for a part that leaves in later rounds only


@dataclass(frozen=True)
class SiteCheck:
    """The result of ``check_site``."""

    study: str
    site: str
    images: int
    annotated: dict[str, tuple[int, int]]  # class -> annotated images, positives
    policy: SitePolicy
    leaving: tuple[LeavingPart, ...]
    sums: SumCheck
    noise: NoiseCheck
    agreed_images: int | None = None
    validation_images: int = 0

    @property
    def is_ok(self) -> bool:
        """Whether the site's policy permits how the study sums, its noise, and all needed parts."""
        refusals = [self.sums.refused, self.noise.refused]
        refusals += [each.refused for each in self.leaving if each.is_needed]
        return all(each is None for each in refusals)

    def to_dict(self) -> dict[str, Any]:
        return {
            "ok": self.is_ok,
            "study": self.study,
            "site": self.site,
            "images": self.images,
            "validation_images": self.validation_images,
            "annotated": {name: list(counts) for name, counts in self.annotated.items()},
            "leaving": [
                each.to_dict() | {"leaves_as": self.leaves_as(each)} for each in self.leaving
            ],
            **self.sums.facts,
            **self.noise.facts,
        }

    def leaves_as(self, each: LeavingPart) -> str:
        how = self.sums.leaves_as.get(each.part, self.sums.otherwise)
        return f"{how}, with noise" if self.noise.has_noise(each.part, each.when) else how

    def lines(self) -> list[str]:
        lines = [f"{self.site} in {self.study}: {counted(self.images, 'image')} to train on"]
        if self.validation_images:
            lines.append(f"{self.validation_images:,} more images to validate on")
        lines += [
            f"{name}: {known:,} annotated, {positive:,} of them positive"
            for name, (known, positive) in self.annotated.items()
        ]
        lines.append(
            f"the weight of its updates is capped at {counted(self.agreed_images, 'image')}, "
            "by agreement"
            if self.agreed_images is not None
            else f"it declares its {counted(self.images, 'image')} to the server, which cap its "
            "weight"
        )
        lines.append(f"nothing about fewer than {counted(self.policy.min_cell, 'patient')} leaves")
        return [*lines, *self.sums.lines, *self.noise.lines]


def check_site(kit: Kit, settings: SiteSettings) -> SiteCheck:
    """Read and decode the site's data; train nothing and send nothing."""
    study, site = kit.study(), kit.role()
    work = open_work_folder(settings)
    found = load_site_data(study, site, settings)
    data = found.training
    policy = settings.policy.tightened(SitePolicy(min_cell=study.recipe.min_cell))
    task = replace(study.task, model=study.task.model.for_loading())
    counts = zip(data.annotated_counts().tolist(), data.positive_counts().tolist())
    annotated = {name: pair for name, pair in zip(study.classes, counts) if pair[0]}
    leaving = what_would_leave(study.recipe.method, data, task, policy)
    leaving += what_would_be_judged(study, found, policy)
    agreed = study.site(site).images
    if study.is_secure:
        open_key(settings.sums_key, study, site)
    sums = check_sums(study, site, policy)
    ledger = PrivacyLedger(work / LEDGER_FILE)
    noise = check_noise(task, data, Budget(study, ledger, policy.max_epsilon))
    return SiteCheck(
        study.name,
        site,
        len(data),
        annotated,
        policy,
        tuple(leaving),
        sums,
        noise,
        agreed,
        validation_images=len(found.validation),
    )


def what_would_be_judged(study: Study, data: SiteData, policy: SitePolicy) -> list[LeavingPart]:
    """Return what the site would send of networks on images that it does not train on."""
    classes, found = study.classes, []
    if study.validates_at_sites:
        parts = expected_validation(len(classes))
        found += judged_parts(parts, "validated rounds", data.validation, classes, policy)
    if fits_at_sites(study):
        parts = {HISTOGRAMS_PART: expected_histograms(len(classes))}
        found += judged_parts(parts, "at the end", data.validation, classes, policy)
    if reports_at_sites(study):
        images, _ = reported_images(data)
        parts = expected_report(len(classes))
        found += judged_parts(parts, "at the end", images, classes, policy)
    return found


def leaving_table(found: SiteCheck) -> Table:
    table = Table(title=f"What would leave {found.site}")
    for column in (
        "part",
        "when",
        "kind",
        "numbers",
        "bytes",
        "leaves as",
        "suppressed",
        "refused",
    ):
        table.add_column(column, justify="right" if column in ("numbers", "bytes") else "left")
    for each in found.leaving:
        table.add_row(
            each.part,
            each.when,
            each.kind or UNKNOWN,
            UNKNOWN if each.numbers is None else f"{each.numbers:,}",
            UNKNOWN if each.bytes is None else f"{each.bytes:,}",
            found.leaves_as(each),
            Text(", ".join(each.suppressed) or "-"),
            Text(each.refused or "-"),
        )
    return table
