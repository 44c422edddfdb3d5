"""SiteModel: a site's current model on its own disk, and its export for ``fedquilt predict``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import parse_json
from fedquilt.core.tree import Weights
from fedquilt.core.wording import counted
from fedquilt.deploy.kit import Kit
from fedquilt.deploy.server.result import site_allocation
from fedquilt.deploy.site.data import site_source
from fedquilt.deploy.site.settings import SiteFiles, SiteSettings
from fedquilt.deploy.site.states import all_studies, study_folder
from fedquilt.deploy.study import AT_SITES, Study
from fedquilt.runs.assessment import GLOBAL
from fedquilt.runs.fitted_decisions import Found, store_decisions
from fedquilt.runs.object_store import DamagedObject, ObjectStore
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.saved_models import save_models
from fedquilt.training.method import Method, State

# own: this site's only; global: the same for all sites; part: the part of a global model that
# this site receives
ModelKind: TypeAlias = Literal["own", "global", "part"]
CARD = "model.json"  # describes the model and names its weights


@dataclass(frozen=True)
class KeptModel:
    """The weights that a site keeps, and where they come from."""

    study: str  # the study's hash
    site: str
    kind: ModelKind
    rounds: int  # finished by the server when it sent the shared weights
    weights: Weights
    decisions: Found = field(default_factory=dict)  # thresholds and calibration, at the end


class SiteModel:
    """A folder with one model; a newer model replaces it atomically."""

    def __init__(self, folder: Path) -> None:
        self._card = folder / CARD
        self._objects = ObjectStore(folder / "model")

    def keep(self, model: KeptModel) -> None:
        key = self._objects.put(model.weights)
        self._objects.make_durable({key})
        names = ("study", "site", "kind", "rounds", "decisions")
        card = {name: getattr(model, name) for name in names} | {"weights": key}
        write_json(self._card, card | {"digest": _digest(card)})
        self._objects.keep_only({key})

    def read(self) -> KeptModel | None:
        """Return the model, None before the first round; raise DamagedObject if it was altered."""
        try:
            card = parse_json(self._card.read_text(encoding="utf-8"))
            digest = card.pop("digest")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            raise DamagedObject(f"{self._card.name} cannot be read: {error}") from error
        if digest != _digest(card) or card.get("kind") not in get_args(ModelKind):
            raise DamagedObject(f"{self._card.name} was altered")
        return KeptModel(**card | {"weights": self._objects.get(card["weights"])})


def model_at(
    study: Study, site: str, received: State, kept: State, rounds: int
) -> KeptModel | None:
    """Return a site's model from a broadcast and its state; None if it has not trained yet."""
    method, state = study.recipe.method, kept.get("method", {})
    shared = _received_weights(method, received)
    if shared is None and not state:
        return None
    weights = method.client_weights(received, state)
    kind: ModelKind = "own"
    if shared is not None:
        kind = "global" if shared.keys() == weights.keys() else "part"
    return KeptModel(study.hash, site, kind, rounds, weights)


def write_site_model(kit: Kit, settings: SiteSettings, out: Path) -> list[str]:
    """Write the site's model into a new run folder; return lines that describe it."""
    if out.exists():
        raise UserError(f"{out} already exists; give another --out")
    study, site = kit.study(), kit.role()
    model = kept_model(study, site, Path(settings.work_folder))
    # The study's own data may be the server's: decode image files as the sites do.
    files = SiteFiles(folder=AT_SITES, labels=AT_SITES)
    data = replace(site_source(study, site, files), classes=study.classes)
    recipe, folder = replace(study.recipe, data=data), RunFolder(out)
    name = GLOBAL if model.kind == "global" else site
    with folder.begin(recipe, resume=False):
        folder.keep(recipe, site_allocation(study))
        save_models(folder, recipe, study.task, {name: model.weights})
        store_decisions(folder, {name: model.decisions} if model.decisions else {})
    option = "" if name == GLOBAL else f" --client {site}"
    return [describe(model, study), f"use it: fedquilt predict {out} IMAGE...{option}"]


def kept_model(study: Study, site: str, work: Path) -> KeptModel:
    """Return the model that the site keeps for this study; raise UserError if there is none."""
    folder = study_folder(work, study, site)
    if not (folder / CARD).exists():
        others = [str(each.relative_to(work)) for each in all_studies(work) if each != folder]
        elsewhere = f"; found models of other studies: {', '.join(others)}; use their kits"
        raise UserError(
            f"{site} has no model of {study.name} in {work}: it has not finished a round of this "
            f"study, or site.toml names another work_folder{elsewhere if others else ''}"
        )
    try:
        model = SiteModel(folder).read()
    except DamagedObject as error:
        raise UserError(
            f"the model of {site} in {folder} is damaged ({error}); the next round replaces it. "
            "After the last round, connect this site and run `fedquilt deploy submit --resume`"
        ) from error
    if model is None or (model.study, model.site) != (study.hash, site):
        raise UserError(
            f"{folder} holds the model of another study or site; this kit is of {study.name} and "
            f"{site}; use the kit of the model's study"
        )
    return model


def describe(model: KeptModel, study: Study) -> str:
    """Return one sentence on what the model is and from which round."""
    rounds = f"after {model.rounds} of {counted(study.recipe.rounds, 'round')}"
    if model.kind == "global":
        return f"the global model, the same for all sites, {rounds}"
    if model.kind == "part":
        return (
            f"the part of the global model that {model.site} receives, {rounds}; it cannot predict "
            "classes whose rows are not sent to the site; the coordinator has the whole model "
            "(fedquilt deploy fetch)"
        )
    if model.rounds == study.recipe.rounds:
        return f"{model.site}'s own model {rounds}"
    return (
        f"{model.site}'s own model: its part after round {model.rounds + 1} of "
        f"{study.recipe.rounds}, with the shared part from before that round; the next round, or "
        "the end of the study, updates the shared part"
    )


def _received_weights(method: Method, received: State) -> Weights | None:
    """Return the global weights in a broadcast; None if every client has its own model."""
    try:
        return method.global_weights(received)
    except KeyError:  # the broadcast lacks a part of the global model
        return {}


def _digest(card: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(card, sort_keys=True).encode()).hexdigest()
