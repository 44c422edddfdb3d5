"""What the sites of a study found of its model, per finding, where the server tested nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from fedquilt.reports.html.findings import Estimate, Finding, threshold_of
from fedquilt.reports.html.run_files import RunFiles

Site = Mapping[str, Any]  # per_class of one site's report, and its intervals


def findings_at_sites(run: RunFiles) -> list[Finding]:
    """Return the classes with their mean AUC over sites; empty if no site has reported."""
    by_site = run.result.get("by_site")
    if not by_site:
        return []
    over_sites = by_site.get("auc_over_sites", {})
    sites = [
        {"per_class": report["per_class"], "intervals": by_site.get("intervals", {}).get(name, {})}
        for name, report in by_site["reports"].items()
    ]
    names_patients = all(site["intervals"].get("unit") == "patient" for site in sites)
    return [
        Finding(
            place=place,
            name=name,
            positives=_total(sites, "positives", place),
            negatives=_total(sites, "negatives", place),
            positive_patients=_patients(sites, "positive", place) if names_patients else None,
            negative_patients=_patients(sites, "negative", place) if names_patients else None,
            auc=_auc(sites, over_sites.get(name), place),
            sensitivity=_share(sites, "recall", "positives", place),
            specificity=_share(sites, "specificity", "negatives", place),
            threshold=threshold_of(run, name),
            annotators=run.annotators.get(name, ()),
        )
        for place, name in enumerate(run.classes)
    ]


def _total(sites: Sequence[Site], kind: str, place: int) -> int:
    return int(fsum(site["per_class"][kind][place] or 0 for site in sites))


def _patients(sites: Sequence[Site], kind: str, place: int) -> int:
    return int(fsum(site["intervals"][f"{kind}_patients"][place] or 0 for site in sites))


def _auc(sites: Sequence[Site], over_sites: Mapping[str, Any] | None, place: int) -> Estimate:
    """The mean with random effects; without one, of one site its own, of several by their pairs."""
    if over_sites is not None:
        return Estimate(over_sites["mean"], over_sites["low"], over_sites["high"])
    able = [site for site in sites if site["per_class"]["auc"][place] is not None]
    if len(able) == 1:
        columns = able[0]["intervals"].get("per_class", {}).get("auc")
        if columns is not None:
            return Estimate(*(columns[field][place] for field in ("value", "low", "high")))
    pairs = [
        (table["auc"][place], table["positives"][place] * table["negatives"][place])
        for table in (site["per_class"] for site in able)
    ]
    return _weighted(pairs)


def _share(sites: Sequence[Site], metric: str, kind: str, place: int) -> Estimate:
    """The share over all sites' images together."""
    tables = [site["per_class"] for site in sites]
    return _weighted(
        [
            (table[metric][place], table[kind][place])
            for table in tables
            if table[metric][place] is not None and table[kind][place]
        ]
    )


def _weighted(pairs: Sequence[tuple[float, float]]) -> Estimate:
    weight = fsum(each for _, each in pairs)
    return Estimate(fsum(a * b for a, b in pairs) / weight if weight else None)
