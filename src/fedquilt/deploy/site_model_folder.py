"""A site's model as a folder that ``fedquilt predict`` takes, like that of a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedquilt.assessment import GLOBAL
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.site_data import site_source
from fedquilt.deploy.site_model import CARD, KeptModel, SiteModel
from fedquilt.deploy.site_settings import SiteFiles, SiteSettings
from fedquilt.deploy.site_states import all_studies, study_folder
from fedquilt.deploy.study import ELSEWHERE, Study
from fedquilt.deploy.study_result import site_allocation
from fedquilt.errors import UserError
from fedquilt.model_files import save_models
from fedquilt.object_store import DamagedObject
from fedquilt.run_folder import RunFolder


def write_site_model(kit: Kit, settings: SiteSettings, out: Path) -> list[str]:
    """Write what the site has kept into a new folder; returns in words what it is."""
    if out.exists():
        raise UserError(f"{out} is there already; give another --out")
    study, site = kit.study(), kit.role()
    model = kept_model(study, site, Path(settings.work_folder))
    # Image files are decoded as the study says, also where its own data are the server's.
    files = SiteFiles(folder=ELSEWHERE, labels=ELSEWHERE)
    data = replace(site_source(study, site, files), classes=study.classes)
    recipe, folder = replace(study.recipe, data=data), RunFolder(out)
    name = GLOBAL if model.kind == "global" else site
    with folder.begin(recipe, resume=False):
        folder.keep(recipe, site_allocation(study))
        save_models(folder, recipe, study.task, {name: model.weights})
    whose = "" if name == GLOBAL else f" --client {site}"
    return [what_it_is(model, study), f"use it: fedquilt predict {out} IMAGE...{whose}"]


def kept_model(study: Study, site: str, work: Path) -> KeptModel:
    """What the site has kept for this study, or a UserError that says why there is nothing."""
    folder = study_folder(work, study, site)
    if not (folder / CARD).exists():
        others = [str(each.relative_to(work)) for each in all_studies(work) if each != folder]
        elsewhere = f"; of other studies there is {', '.join(others)}: use their kits"
        raise UserError(
            f"{site} has kept no model of {study.name} in {work}: it has not finished a round of "
            f"this study, or site.toml names another work_folder{elsewhere if others else ''}"
        )
    try:
        model = SiteModel(folder).read()
    except DamagedObject as error:
        raise UserError(
            f"the model that {site} has kept in {folder} is damaged ({error}); the next round "
            "writes it anew, and after the last one `fedquilt deploy submit --resume` of the "
            "coordinator, with this site connected"
        ) from error
    if model is None or (model.study, model.site) != (study.hash, site):
        raise UserError(
            f"{folder} holds the model of another study or site than this kit's, {study.name} and "
            f"{site}; use the kit that it was made with"
        )
    return model


def what_it_is(model: KeptModel, study: Study) -> str:
    so_far = f"after {model.rounds} of {study.recipe.rounds} rounds"
    if model.kind == "global":
        return f"the global model, the same for all sites, {so_far}"
    if model.kind == "part":
        return (
            f"what {model.site} receives of the global model, {so_far}; it says nothing about the "
            "classes whose rows the site is not sent: the coordinator has them all (deploy fetch)"
        )
    if model.rounds == study.recipe.rounds:
        return f"the own model of {model.site} {so_far}"
    return (
        f"the own model of {model.site} as it left round {model.rounds + 1} of "
        f"{study.recipe.rounds}, with what sites share as it was before that round; what the "
        "server made of it comes with the next round, and with the end of the study"
    )
