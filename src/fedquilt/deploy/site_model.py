"""SiteModel: the model a site would use now, kept on its own disk beside its states."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from fedquilt.atomic_files import write_json
from fedquilt.deploy.study import Study
from fedquilt.method import Method, State
from fedquilt.object_store import DamagedObject, ObjectStore
from fedquilt.tree import Weights

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
