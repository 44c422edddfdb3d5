"""Study: what the coordinator and all sites agree on before training (study.toml)."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.parsed_text import format_of, parse_table
from fedquilt.core.settings import added, plain, read
from fedquilt.core.shown_text import shown
from fedquilt.data.images.decoding import Fit
from fedquilt.deploy.secure.terms import FewAnnotators, SumTerms
from fedquilt.deploy.study_rules import Rules
from fedquilt.models.class_names.text_vectors import FINER_NAMES, HASHED, SETTING
from fedquilt.privacy.sent_parts import check_can_be_summed
from fedquilt.recipes.recipe import Recipe, read_settings, recipe_from
from fedquilt.reports.html.card import Card
from fedquilt.training.private_training import check_private_training
from fedquilt.training.task import Task

AT_SITES = "at the sites"  # in place of paths that only the sites know
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ORGANISATION = re.compile(r"[A-Za-z0-9_]{1,64}")


@dataclass(frozen=True, kw_only=True)
class Images:
    """The size and form into which every site decodes its image files."""

    size: int = 224
    channels: Literal[1, 3] = 3
    fit: Fit = "squash"
    window: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class StudySite:
    """A hospital and the classes it annotates, which all participants know."""

    name: str
    organisation: str
    annotates: tuple[str, ...]
    images: int | None = added(None)  # at most so many to train on: the cap of its weight
    key: str | None = added(None)  # public, for secure sums: made with `fedquilt site key`

    def __post_init__(self) -> None:
        if self.images is not None and self.images < 1:
            raise UserError(f"study.sites: images of {self.name!r} must be 1 or more")
        if not ORGANISATION.fullmatch(self.organisation):
            raise UserError(
                f"study.sites: organisation {self.organisation!r} must be letters, digits and "
                "underscores: it is written into certificates"
            )


@dataclass(frozen=True, kw_only=True)
class ServerAddress:
    """The server's address, for sites and for the server itself."""

    host: str  # the name that sites connect to, and that the server's certificate is for
    port: int = 8002
    bind: str  # the only address the server listens on; 0.0.0.0 must be given explicitly

    def __post_init__(self) -> None:
        try:
            ipaddress.IPv4Address(self.bind)
        except ValueError:
            raise UserError(
                f"study.server.bind is {self.bind!r}; expected an IPv4 address of the server's "
                "machine, such as 10.0.0.5 (0.0.0.0: all of them)"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Study:
    """Sites, classes, images, server, rules and recipe of one study."""

    name: str
    classes: tuple[str, ...]
    images: Images = Images()
    sites: tuple[StudySite, ...]
    server: ServerAddress
    rules: Rules = field(default_factory=Rules)
    recipe: Recipe
    evaluate_on_server: bool = False  # on the test split of the recipe's data
    few_annotators: FewAnnotators = added("refuse")  # of a class, under secure sums
    card: Card = added(Card())  # what the report states of the model: intended use, ethics, ...

    def __post_init__(self) -> None:
        for name in (self.name, *self.site_names):
            if not NAME.fullmatch(name):
                raise UserError(
                    f"{name!r} cannot name a study or a site: use small letters, digits and "
                    "hyphens, at most 63, because it is also a name in certificates"
                )
        if len(set(self.site_names)) != len(self.sites) or len(self.sites) < 2:
            raise UserError("a study needs at least two sites, with distinct names")
        unsafe = [shown(name) for name in self.classes if shown(name) != name]
        if unsafe:
            raise UserError(
                f"the class name {unsafe[0]} has control characters, shown here as codes; remove "
                "them: class names are shown on every site's terminal"
            )
        self._check_annotators()
        self._check_method()
        self._check_summation()
        if not 1 <= self.rules.quorum <= len(self.sites):
            raise UserError(
                f"study.rules.quorum is {self.rules.quorum}; expected 1 to {len(self.sites)}, the "
                "number of sites"
            )

    @property
    def site_names(self) -> tuple[str, ...]:
        return tuple(site.name for site in self.sites)

    @property
    def agreed_images(self) -> dict[str, int]:
        """The agreed number of images of the sites that have one."""
        return {site.name: site.images for site in self.sites if site.images is not None}

    @property
    def has_global_model(self) -> bool:
        """Whether there is one model for all sites, so that all can judge the same one."""
        return self.recipe.method.global_weights({"weights": {}}) is not None

    @property
    def validates_at_sites(self) -> bool:
        """Whether sites judge the network after a round on images that they do not train on."""
        return self.recipe.validation.share > 0 and self.has_global_model

    @property
    def is_secure(self) -> bool:
        """Whether the server learns sums over sites only."""
        return self.recipe.summation == "secure"

    @cached_property
    def sum_terms(self) -> SumTerms:
        count, recipe = len(self.sites), self.recipe
        return SumTerms(
            annotates={site.name: site.annotates for site in self.sites},
            keys={site.name: site.key for site in self.sites},
            classes=self.classes,
            cohort=min(recipe.cohort_size or count, count),
            quorum=self.rules.quorum,
            few_annotators=self.few_annotators,
            clips_to_median=recipe.bounds.beyond == "clip",
            validates=self.validates_at_sites,
            all_has_noise=recipe.privacy.training,
        )

    def site(self, name: str) -> StudySite:
        for site in self.sites:
            if site.name == name:
                return site
        raise UserError(f"the study has no site {name!r}{nearest(name, self.site_names)}")

    @cached_property
    def task(self) -> Task:
        """The task, equal to that of a simulation of the same recipe."""
        shape = self.images.channels, self.images.size, self.images.size
        return self.recipe.task(self.classes, self.site_names, shape)

    def to_dict(self) -> dict[str, Any]:
        settings: dict[str, Any] = plain(self, {}) | {"recipe": self.recipe.to_dict()}
        return settings

    @cached_property
    def hash(self) -> str:
        """Hash of what a site agrees to; time limits and addresses may change without new kits."""
        agreed = self.to_dict()
        for key in ("server", "rules", "evaluate_on_server", "card"):
            agreed.pop(key, None)
        for key in ("data", "partition", "annotation", "evaluation", "checkpoint_every"):
            agreed["recipe"].pop(key)
        return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).hexdigest()

    def _check_annotators(self) -> None:
        for site in self.sites:
            for name in site.annotates:
                if name not in self.classes:
                    raise UserError(
                        f"site {site.name!r} annotates {name!r}, which is not a class of the study"
                        f"{nearest(name, self.classes)}"
                    )
        annotated = {name for site in self.sites for name in site.annotates}
        unannotated = [name for name in self.classes if name not in annotated]
        if unannotated:
            raise UserError(f"no site annotates {', '.join(unannotated)}; leave the class out")

    def _check_method(self) -> None:
        method = self.recipe.method
        if method.needs_pooled_data or method.needs_complete_labels:
            raise UserError(
                f"{type(method).__name__} is a bound for simulations: it needs labels or images "
                "that no site may send; choose another method for a study across hospitals"
            )
        if self.recipe.model.train != "all":
            raise UserError(
                f"model.train is {self.recipe.model.train!r}: the weights that are not trained are "
                "not sent, and sites of a study have no file with them; use 'all', or run a "
                "simulation"
            )
        if self.recipe.privacy.training:
            check_private_training(method, self.task)
        self._check_payload()
        if self.recipe.robust.alarm is not None and not self.evaluate_on_server:
            raise UserError(
                "robust.alarm needs images that the server can test on: set evaluate_on_server = "
                "true and name them in recipe.data, or leave robust.alarm out"
            )

    def _check_payload(self) -> None:
        payload, settings = self.recipe.payload, self.task.model.head_settings
        if self.is_secure and payload.is_lossy:
            raise UserError(
                "payload.numbers and payload.top_share save nothing with summation = 'secure': a "
                "masked number takes 8 bytes whatever it was; leave them out, or use 'plain' or "
                "'ring'"
            )
        encoder = settings.get(SETTING, HASHED)
        if not payload.send_fixed and (encoder != HASHED or FINER_NAMES in settings):
            raise UserError(
                f"payload.send_fixed = false: the sites build the text vectors themselves, and "
                f"have no files for text_encoder {encoder!r}; use {HASHED!r} without finer_names, "
                "or send them"
            )

    def _check_summation(self) -> None:
        summation = self.recipe.summation
        unknown = [site.name for site in self.sites if site.images is None]
        check_can_be_summed(self.recipe.method, self.task, summation)
        if summation != "plain" and unknown:
            raise UserError(
                f"summation = {summation!r} needs `images` in [[sites]] of {', '.join(unknown)}: "
                "the scale of the integers follows from the agreed numbers"
            )
        if self.is_secure:
            self.sum_terms.check()


def read_study(path: Path) -> Study:
    """Read a study from TOML or JSON; its ``recipe`` is a table or the path of a recipe file."""
    try:
        text = path.read_text(encoding="utf-8")
        settings = parse_table(text, path.suffix)
    except OSError as error:
        raise UserError(f"the study {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not JSON, not TOML, or not text
        form = format_of(path.suffix)
        raise UserError(f"the study {path} is not valid {form}: {error}") from error
    if isinstance(settings.get("recipe"), str):
        settings["recipe"] = read_settings(path.resolve().parent / settings["recipe"])
    return study_from(settings)


def study_from(settings: Mapping[str, Any]) -> Study:
    """Build a study from plain settings; raise UserError for what does not fit."""
    given = dict(settings)
    images: Images = read(Images, given.get("images", {}), "study.images", {})
    recipe = given.get("recipe")
    if not isinstance(recipe, Mapping):
        raise UserError("study.recipe must be a table of settings, or the path of a recipe file")
    site_data = {
        "data": {"name": "folder", "folder": AT_SITES, "labels": AT_SITES}
        | {"classes": given.get("classes"), **plain(images, {})},
        "partition": {"name": "natural", "by": "site"},
        "annotation": {"name": "recorded"},
    }
    if not given.get("evaluate_on_server"):  # a recipe's simulated data are not the sites' data
        recipe = {key: value for key, value in recipe.items() if key not in site_data}
    study: Study = read(
        Study, given | {"recipe": recipe_from(site_data | dict(recipe))}, "study", {}
    )
    return study
