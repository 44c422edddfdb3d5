"""The report of one run: ``report.html`` and ``MODEL_CARD.md``, made from its folder."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_bytes
from fedquilt.core.version import VERSION
from fedquilt.core.wording import counted
from fedquilt.reports.html import summary
from fedquilt.reports.html.card import TITLES, Card, card_from, keep_card
from fedquilt.reports.html.checklist import ITEMS, WORDS
from fedquilt.reports.html.class_section import class_rows, curve_blocks, forest
from fedquilt.reports.html.data_section import data_section
from fedquilt.reports.html.findings import FEW, Finding, findings_of, shown_intervals
from fedquilt.reports.html.formatting import count, percent
from fedquilt.reports.html.other_data_section import other_data_section
from fedquilt.reports.html.page import render_markdown, render_page
from fedquilt.reports.html.round_section import pseudo_label_section, round_section
from fedquilt.reports.html.run_files import CARD_FILE, RunFiles
from fedquilt.reports.html.scored_images import ScoredImages
from fedquilt.reports.html.site_findings import findings_at_sites
from fedquilt.reports.html.site_section import attendance, leaving_section, site_section

REPORT_FILE, CARD_PAGE = "report.html", "MODEL_CARD.md"

AT_SITES = "in this study they stayed at the sites, which sent the numbers of section 7"

log = logging.getLogger(__name__)


def write_run_report(folder: Path, out: Path | None = None, card: Card | None = None) -> list[Path]:
    """Write the report of a finished run and its model card beside it; return both paths.

    Args:
        folder: the run folder.
        out: the HTML file; by default ``report.html`` in the run folder.
        card: kept in the run folder; by default the one kept there earlier, if any.
    """
    out = folder / REPORT_FILE if out is None else out
    content = run_content(RunFiles(folder), card)
    if card is not None:
        keep_card(folder, card)
    pages = {
        out: render_page("run.html", content),
        out.with_name(CARD_PAGE): render_markdown("MODEL_CARD.md", content),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    for path, page in pages.items():
        write_bytes(path, page.encode("utf-8"))
    return list(pages)


def try_run_report(folder: Path) -> str | None:
    """Write the report at the end of a run; return what went wrong, because the run is done."""
    try:
        write_run_report(folder)
    except Exception as error:  # whatever it is, the run's numbers are safe
        log.debug("report of %s", folder, exc_info=True)
        again = shlex.join(["fedquilt", "report", str(folder)])
        return f"the report was not written ({type(error).__name__}: {error}); try: {again}"
    return None


def run_content(run: RunFiles, card: Card | None = None) -> dict[str, Any]:
    """Return everything that the templates print."""
    scored = ScoredImages(run.path, run.model.get("calibration", {}))
    setting = _setting(run, scored.counts)
    findings = scored.with_patients(findings_of(run)) or findings_at_sites(run)
    curves = scored.curves()
    stated = card if card is not None else card_from(run.card, CARD_FILE)
    sites = len(run.annotated)
    return {
        "title": stated.title.strip() or _title(run),
        "lead": _lead(run, setting),
        "tiles": _tiles(run, setting, findings),
        "sentences": [
            *summary.training_sentences(setting),
            *([summary.evaluation_sentence(setting)] if findings else []),
            *summary.class_sentences(findings),
        ],
        "reliance": summary.reliance_sentences(findings),
        "limits": summary.limits(setting),
        "meaning_of_auc": summary.MEANING_OF_AUC,
        "forest": forest(findings),
        "data": data_section(run),
        "classes": class_rows(findings, curves, sites),
        "has_slopes": any(each.raw is not None for each in curves.values()),
        "names_patients": any(each.positive_patients is not None for each in findings),
        "few": FEW,
        "curves": curve_blocks(findings, curves),
        "why_no_curves": AT_SITES if setting.tested_at is not None else scored.why_missing,
        "rounds": round_section(run, setting.served_round),
        "pseudo": pseudo_label_section(run, setting.served_round),
        "by_site": site_section(run),
        "other_data": other_data_section(run),
        "attendance": attendance(run),
        "leaving": leaving_section(run),
        "audits": run.audits,
        "reproduce": _reproduce(run),
        "card": stated.rows(),
        "card_titles": TITLES,
        "checklist": [item._asdict() | {"words": WORDS[item.coverage]} for item in ITEMS],
        "version": VERSION,
        "setting": setting,
    }


def _setting(run: RunFiles, tested: Mapping[str, int | None]) -> summary.Setting:
    result, facts = run.result, run.data
    parts, served = facts.get("splits", {}), result.get("served", {})
    train, test = parts.get("train", {}), parts.get("test", tested)
    sites = facts.get("sites", ())
    per_site = [int(row.sum()) for row in run.annotated.values()]
    by_site = run.result.get("by_site") if not result.get("reports") else None
    if by_site:
        of_sites = list(by_site.get("part", {}).values())
        test = {"images": sum(by_site["images"].values())}
    return summary.Setting(
        method=str(result["method"]),
        sites=len(run.annotated),
        classes=len(run.classes),
        annotated_by_site=tuple(per_site),
        train_images=sum(each["images"] for each in sites) if sites else None,
        train_patients=train.get("patients"),
        test_images=test.get("images"),
        test_patients=test.get("patients"),
        tested_at=len(by_site["images"]) if by_site else None,
        on_validation=of_sites.count("validation") if by_site else 0,
        patients_in_both=facts.get("patients_in_both"),
        model_count=max(1, len(result.get("reports", {}))),
        served_round=served.get("round") if served else result["rounds"],
        rounds=result["rounds"],
        chosen_on="validation" if served.get("model") == "best" else None,
        thresholds_fitted=bool(run.model.get("thresholds", {}).get("fitted_on")),
        calibrated=_is_calibrated(run),
        missing_images=result.get("missing_images", 0),
    )


def _is_calibrated(run: RunFiles) -> bool:
    classes = run.model.get("calibration", {}).get("classes", {})
    return bool(classes) and not any("fallback" in each for each in classes.values())


def _title(run: RunFiles) -> str:
    what = run.result.get("study") or run.recipe.get("data", {}).get("name", "")
    what = "own images" if what == "folder" else what
    return f"{run.result['method']} on {what}"


def _lead(run: RunFiles, setting: summary.Setting) -> str:
    kind = "Study across hospitals" if run.is_study else "Simulated federation"
    if setting.served_round is None:
        return f"{kind} · every client's own model"
    return f"{kind} · model of round {setting.served_round} of {setting.rounds}"


def _tiles(
    run: RunFiles, setting: summary.Setting, findings: list[Finding]
) -> list[tuple[str, str]]:
    """Return the numbers of the first screen with what they count."""
    judged = sum(each.judgement in ("measured", "chance") for each in findings)
    tiles = []
    macro = shown_intervals(run).get("averages", {}).get("macro_auc", {})
    value = run.result.get("metrics", {}).get("macro_auc")
    at_sites = run.result.get("by_site", {}).get("mean", {}).get("macro_auc")
    if setting.tested_at is not None and at_sites is not None:
        words = "mean AUC over findings at a site, mean over sites (50 %: guessing)"
        tiles.append((f"{percent(at_sites)} %", words))
    if value is not None:
        ends = ""
        if macro.get("low") is not None:
            ends = f"; 95 % interval {percent(macro['low'])} to {percent(macro['high'])}"
        tiles.append((f"{percent(value)} %", f"mean AUC over findings (50 %: guessing){ends}"))
    if findings:
        enough = f"findings with at least {FEW} tested cases of either kind"
        tiles.append((f"{judged} of {len(findings)}", enough))
    if setting.test_images is not None:
        of = ""
        if setting.test_patients is not None:
            of = f" of {counted(setting.test_patients, 'patient')}"
        tiles.append((count(setting.test_images), f"test images{of}"))
    tiles.append((count(setting.sites), "sites that trained it"))
    return tiles


def _reproduce(run: RunFiles) -> dict[str, Any]:
    result = run.result
    hashes = {"recipe": result["recipe_hash"], "who holds what": result["partition_hash"]}
    return {
        "recipe": json.dumps(_without_places(run.recipe), indent=2, ensure_ascii=False).split("\n"),
        "hashes": {name: value for name, value in hashes.items() if value},
        "seeds": {
            name: run.recipe[name]
            for name in ("seed", "allocation_seed")
            if run.recipe.get(name) is not None
        },
        "versions": result.get("environment", {}),
        "seconds": f"{result.get('seconds', 0):,.0f}",
        "is_study": run.is_study,
    }


def _without_places(settings: Any) -> Any:
    """Keep the name of a file or folder, not where it lies: a report is sent to others."""
    if isinstance(settings, dict):
        return {name: _without_places(value) for name, value in settings.items()}
    if isinstance(settings, list):
        return [_without_places(value) for value in settings]
    if isinstance(settings, str) and (Path(settings).is_absolute() or settings.startswith("~")):
        return f"…/{Path(settings).name}"
    return settings
