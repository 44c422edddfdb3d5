"""StudyEnd: what the sites are asked about the final model, which has reached them.

First, where the recipe wants thresholds or calibration, histograms of the scores of their
validation images, once. Then what the model is worth on their own test images.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

from torch import Tensor

from fedquilt.core.payload import Update
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.deploy.protocol.messages import HISTOGRAMS, REPORT
from fedquilt.deploy.server.remote_engine import RemoteEngine
from fedquilt.deploy.server.site_results import by_site
from fedquilt.deploy.server.unannotated_rows import annotated_by
from fedquilt.deploy.shared_thresholds import as_tensors, fits_at_sites, reports_at_sites
from fedquilt.deploy.study import Study
from fedquilt.metrics.fitting_from_histograms import fit_from_histograms
from fedquilt.metrics.histograms import Cells
from fedquilt.privacy import score_histograms, site_report
from fedquilt.runs.fitted_decisions import Found, decision_entries

Notice = Callable[[str], None]


class StudyEnd:
    """Asks once; sites that do not answer, or whose policy says no, are left out with a notice."""

    def __init__(self, study: Study, engine: RemoteEngine, notice: Notice) -> None:
        self._study, self._engine, self._notice = study, engine, notice

    def thresholds(self, rounds: int) -> Found:
        """Return thresholds and calibration of the global model, for ``model.json``."""
        settings, classes = self._study.recipe.evaluation, self._study.classes
        rules = settings.decisions
        rules.check_classes(classes)
        if rules.is_default or not self._study.has_global_model:
            return {}
        sites, where = {}, dict[str, Any](fitted_on=None, round=None)
        if fits_at_sites(self._study):
            sites = self._histograms(rounds)
            where = {"fitted_on": "validation", "round": rounds, "from": "histograms"}
            where |= {"min_cell": self._study.recipe.min_cell, "sites": sorted(sites)}
        found = fit_from_histograms(rules, settings.threshold, classes, sites)
        return decision_entries(rules, found.thresholds, found.calibration, where)

    def by_site(self, rounds: int, fitted: Found) -> dict[str, Any]:
        """Return ``by_site`` for result.json; empty if no site is asked or none answers."""
        if not reports_at_sites(self._study):
            return {}
        study, classes = self._study, self._study.classes
        reports = self._asked(
            REPORT,
            rounds,
            as_tensors(fitted, classes),
            site_report.expected_report(len(classes)),
            site_report.SiteReportCheck(partial(annotated_by, study), classes),
        )
        model: Literal["own", "global"] = "global" if study.has_global_model else "own"
        return {"by_site": by_site(reports, classes, model)} if reports else {}

    def _histograms(self, rounds: int) -> dict[str, Mapping[str, Cells]]:
        classes = self._study.classes
        expected = {score_histograms.PART: score_histograms.expected_histograms(len(classes))}
        sent = self._asked(HISTOGRAMS, rounds, {}, expected, self._check_cells)
        return {
            site: score_histograms.cells_by_class(value, classes)
            for site, value in sorted(sent.items())
        }

    def _check_cells(self, site: str, update: Update) -> None:
        value: Any = update[score_histograms.PART].value
        try:
            cells = score_histograms.cells_by_class(value, self._study.classes)
        except ValueError as error:
            raise RefusedUpdate(f"client {site!r}: {error}") from error
        annotates = self._study.site(site).annotates
        for name in cells:
            if name not in annotates:
                raise RefusedUpdate(
                    f"client {site!r}: it judges {name!r}, which it does not annotate"
                )

    def _asked(
        self,
        kind: str,
        rounds: int,
        tree: dict[str, Any],
        expected: Update,
        check: Callable[[str, Update], None],
    ) -> dict[str, Mapping[str, Tensor]]:
        """Return what every site sent that answered; say who did not, and why."""
        totals = self._engine.ask_once(kind, rounds, tree, expected, check)
        for site, why in self._engine.last_exchange.missing.items():
            self._notice(f"{site} did not answer the request for {kind!r} ({why})")
        (part,) = expected
        gathered: Any = {} if totals is None else totals.gathered[part]
        return dict(gathered)
