"""SiteModel: the model a site would use now, on its own disk, ready for ``predict``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.tree import Weights
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.server.result import site_allocation
from fedquilt.deploy.site.data import site_source
from fedquilt.deploy.site.settings import SiteFiles, SiteSettings
from fedquilt.deploy.site.states import all_studies, study_folder
from fedquilt.deploy.study import ELSEWHERE, Study
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.object_store import DamagedObject, ObjectStore
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.trained_models import save_models
from fedquilt.training.method import Method, State

# own: of this site alone; global: everybody's; part: what a site receives of everybody's
Kind: TypeAlias = Literal["own", "global", "part"]
CARD = "model.json"


@dataclass(frozen=True)
class KeptModel:
    study: str  # the hash of what was agreed on
    site: str
    kind: Kind
    rounds: int  # after how many the server sent what is in it
    weights: Weights


class SiteModel:
    """One model; a newer one takes its place at once and whole."""

    def __init__(self, folder: Path) -> None:
        self._card = folder / CARD
        self._objects = ObjectStore(folder / "model")

    def keep(self, model: KeptModel) -> None:
        key = self._objects.put(model.weights)
        self._objects.make_durable({key})
        names = ("study", "site", "kind", "rounds")
        card = {name: getattr(model, name) for name in names} | {"weights": key}
        write_json(self._card, card | {"digest": _digest(card)})
        self._objects.keep_only({key})

    def read(self) -> KeptModel | None:
        """None before the first round; DamagedObject where it cannot be what was kept."""
        try:
            card = json.loads(self._card.read_text(encoding="utf-8"))
            digest = card.pop("digest")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise DamagedObject(f"{self._card.name} cannot be read: {error}") from error
        if digest != _digest(card) or card.get("kind") not in get_args(Kind):
            raise DamagedObject(f"{self._card.name} was altered")
        return KeptModel(**card | {"weights": self._objects.get(card["weights"])})


def model_at(
    study: Study, site: str, received: State, kept: State, rounds: int
) -> KeptModel | None:
    """The model of a site that has received and kept this; None if it needs a round of its own."""
    method, state = study.recipe.method, kept.get("method", {})
    shared = _global_part(method, received)
    if shared is None and not state:
        return None
    weights = method.client_weights(received, state)
    kind: Kind = "own"
    if shared is not None:
        kind = "global" if shared.keys() == weights.keys() else "part"
    return KeptModel(study.hash, site, kind, rounds, weights)


def _global_part(method: Method, received: State) -> Weights | None:
    """What a broadcast holds of the global model; None where every client has its own."""
    try:
        return method.global_weights(received)
    except KeyError:  # there is a global model, of something that the server does not send
        return {}


def _digest(card: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()


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
