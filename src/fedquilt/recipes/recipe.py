"""Recipe: every setting that determines a run's results, as one frozen dataclass."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.bounds import DEFAULT_BOUNDS, Bounds
from fedquilt.core.compact_payload import AS_THEY_ARE, PayloadOptions
from fedquilt.core.errors import UserError
from fedquilt.core.fixed_point import Summation
from fedquilt.core.own_code import remember
from fedquilt.core.parsed_text import format_of, parse_table, parse_toml
from fedquilt.core.robust import NOT_ROBUST, Robust
from fedquilt.core.settings import Tables, added, plain, read
from fedquilt.data.annotations import ANNOTATIONS
from fedquilt.data.annotations.rules import Annotation
from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.data.partitions import PARTITIONS
from fedquilt.data.partitions.partition import Partition
from fedquilt.data.source import Source
from fedquilt.data.sources import SOURCES
from fedquilt.data.validation import Validation
from fedquilt.methods import all_methods
from fedquilt.metrics.evaluation import Evaluation
from fedquilt.models.spec import ModelSpec
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Method
from fedquilt.training.noise_plan import noised_parts
from fedquilt.training.privacy_settings import NO_NOISE, Privacy
from fedquilt.training.task import Task

StateNumbers: TypeAlias = Literal["float32", "bfloat16"]
NOT_PATHS = ("random", "timm")  # values of model.weights that are not files


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The data, its split over clients, the model, the method and the number of rounds."""

    data: Source
    partition: Partition
    annotation: Annotation
    model: ModelSpec = ModelSpec()
    views: Views = Views()
    method: Method
    rounds: int = 40
    cohort_size: int | None = None  # clients per round; default: all
    seed: int = 0  # for the model, the training and, without allocation_seed, the allocation
    allocation_seed: int | None = None  # for which client holds and annotates what
    evaluation: Evaluation = Evaluation()
    validation: Validation = added(Validation())  # images that choose the round, if there are any
    checkpoint_every: int = 1  # rounds
    min_cell: int = 0  # disclosure floor: values computed from fewer patients are not sent
    bounds: Bounds = added(DEFAULT_BOUNDS)  # on the weights and norms of clients' updates
    summation: Summation = added("plain")  # of floats, or of integers: any order, same bits
    robust: Robust = added(NOT_ROBUST)  # a rule in place of the weighted mean, and an alarm
    privacy: Privacy = added(NO_NOISE)  # noise on what clients send, and its budget
    payload: PayloadOptions = added(AS_THEY_ARE)  # fewer bytes, rounded or left out
    state_numbers: StateNumbers = added("float32")  # of clients' states between rounds

    def __post_init__(self) -> None:
        for name in ("rounds", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, found {getattr(self, name)}")
        if self.min_cell < 0:
            raise UserError(f"min_cell must be 0 or more, found {self.min_cell}")
        self.rules  # noqa: B018 (raises if they contradict each other)
        noised_parts(self.method, self.privacy)
        method = self.method
        remember(type(method))  # it may be a class of the user's script
        if (
            isinstance(method, WeightedAveraging)
            and method.one_class_per_image
            and not method.can_be_exclusive
        ):
            raise UserError(
                f"method.one_class_per_image: {type(method).__name__} has no form for images of "
                "one class each; leave it false"
            )
        if self.cohort_size is not None and self.cohort_size < 1:
            raise UserError(f"cohort_size must be at least 1, found {self.cohort_size}")

    @property
    def rules(self) -> AggregationRules:
        """How the server combines updates."""
        return AggregationRules(
            bounds=self.bounds,
            summation=self.summation,
            robust=self.robust,
            payload=self.payload,
        )

    def task(
        self,
        classes: Sequence[str],
        clients: Iterable[str],
        image_shape: tuple[int, int, int],
    ) -> Task:
        """Return what these clients train; a simulation and a study of a recipe have the same."""
        model = self.model
        return Task(
            classes=tuple(classes),
            clients=tuple(clients),
            image_shape=image_shape,
            model=self.method.model_spec(model),
            preprocessing=Preprocessing(views=self.views, mean=model.mean, std=model.std),
            round_count=self.rounds,
            seed=self.seed,
            privacy=self.privacy,
            sends_fixed=self.payload.send_fixed,
        )

    def to_dict(self) -> dict[str, Any]:
        settings: dict[str, Any] = plain(self, _tables())
        return settings

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()


def recipe_from(settings: Mapping[str, Any]) -> Recipe:
    recipe: Recipe = read(Recipe, settings, "recipe", _tables())
    return recipe


def read_recipe(path: str | Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe from a TOML or JSON file; relative paths start at the file's folder."""
    return recipe_from(with_overrides(read_settings(Path(path)), overrides))


def read_settings(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        settings = parse_table(text, path.suffix)
    except OSError as error:
        raise UserError(f"the recipe {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, not JSON, or not text
        form = format_of(path.suffix)
        raise UserError(f"the recipe {path} is not valid {form}: {error}") from error
    return _anchored(settings, path.resolve().parent)


def with_overrides(settings: Mapping[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Apply overrides such as ``method.warmup_rounds=20``; the value is TOML."""
    result: Any = copy.deepcopy(dict(settings))
    for override in overrides:
        place, equals, text = override.partition("=")
        if not equals or not place.strip():
            raise UserError(f"--set needs PLACE=VALUE, e.g. rounds=20; found {override!r}")
        *parents, key = place.strip().split(".")
        table = result
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise UserError(f"--set {override!r}: {parent!r} is not a table of settings")
        table[key] = _value(text.strip())
    return result  # type: ignore[no-any-return]


def _value(text: str) -> Any:
    """Parse a TOML value; ``none`` becomes None, any other text such as ``fedmlp`` a string."""
    if text == "none":
        return None
    try:
        return parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def _anchored(settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Make relative paths of user files absolute, so that a run can be resumed from anywhere."""
    places = {"data": ("folder", "labels", "label_names"), "model": ("weights",)}
    for table, keys in places.items():
        for key in keys:
            given = settings.get(table)
            entry = given.get(key) if isinstance(given, dict) else None
            if isinstance(entry, str) and entry not in NOT_PATHS and (folder / entry).exists():
                settings[table][key] = str((folder / entry).resolve())
    return settings


def _tables() -> Tables:
    return {
        Source: ("data source", SOURCES),
        Partition: ("partition", PARTITIONS),
        Annotation: ("annotation", ANNOTATIONS),
        Method: ("method", all_methods()),
    }
