"""Site by site: predictions of the whole test set, regrouped by where the images come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.partitions.natural import Natural
from fedquilt.data.partitions.partition import Partition
from fedquilt.evaluation import Evaluation
from fedquilt.metrics import Report, score
from fedquilt.metrics.over_reports import (
    count_over_reports,
    deviation_over_reports,
    mean_over_reports,
)

SiteRows: TypeAlias = Mapping[str, Tensor]  # client -> (n,) int64: the test images of its site
NO_SITES: SiteRows = MappingProxyType({})


@dataclass(frozen=True)
class SiteAssessment:
    """For every client a report on the test images of its own site.

    A site rarely has every class, so a class whose metric is undefined there is left out of all
    averages: it counts neither as 0 nor as 1.
    """

    model: Literal["own", "global"]  # each client's own, or one for all
    reports: Mapping[str, Report]
    images: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; an average is None where it is undefined."""
        reports = self.reports.values()
        return {
            "model": self.model,
            "images": dict(self.images),
            "mean": mean_over_reports(reports),
            "deviation": deviation_over_reports(reports),
            "client_count": count_over_reports(reports),
            "reports": {name: report.to_dict() for name, report in self.reports.items()},
        }


def rows_of_sites(
    test: MultiLabelDataset, partition: Partition, clients: Sequence[str]
) -> SiteRows:
    """Nothing where clients are no sites, or where all test images come from other sites."""
    if test.sites is None or not isinstance(partition, Natural) or partition.by != "site":
        return NO_SITES
    rows: dict[str, list[int]] = {name: [] for name in clients}
    for row, site in enumerate(test.sites):
        if site in rows:  # not a site that was too small to be a client
            rows[site].append(row)
    if not any(rows.values()):
        return NO_SITES
    return {name: torch.tensor(own, dtype=torch.int64) for name, own in rows.items()}


def reports_by_site(
    probabilities: Tensor, test: MultiLabelDataset, sites: SiteRows, settings: Evaluation
) -> dict[str, Report]:
    """One model's report at each of the sites, from its probabilities (N, C) of all test images."""
    return {
        name: score(
            probabilities[rows],
            test.labels[rows],
            test.known[rows],
            test.classes,
            threshold=settings.threshold,
            strict=settings.strict,
            zero_division="skip",
        )
        for name, rows in sites.items()
    }
