"""Options for a user's own images and labels, and the recipe built from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedquilt.cli.console import note
from fedquilt.cli.options import completing
from fedquilt.core.errors import UserError
from fedquilt.core.registry import canonical
from fedquilt.methods import all_methods

if TYPE_CHECKING:
    from fedquilt.recipes.recipe import Recipe

PANEL = "Own data"
DEFAULT_SIZE = 224  # as of the data source and of `data check`; 64 trains about 12 times as fast
Options = TypeVar("Options", bound="FolderOptions")


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)


DataFolder = Annotated[Path | None, _option("--data", text="Folder with the images.")]
LabelFile = Annotated[
    Path | None, _option("--labels", text="CSV file: one row per image; 1, 0 or blank per class.")
]
ImageColumn = Annotated[str, _option("--image-column", text="Column with the image names.")]
SiteColumn = Annotated[
    str | None,
    _option(
        "--site-column", "--sites-column", text="Column with the sites; each site is a client."
    ),
]
PatientColumn = Annotated[
    str | None,
    _option("--patient-column", text="Column with the patients; each stays in one split."),
]
SplitColumn = Annotated[
    str | None,
    _option("--split-column", text="Column with train, val or test. Default: random splits."),
]
Classes = Annotated[
    str | None,
    _option("--classes", text="Class names, separated by commas. Default: all other columns."),
]
IgnoreColumns = Annotated[
    str | None, _option("--ignore-columns", text="Columns to ignore, separated by commas.")
]
Uncertain = Annotated[
    str, _option("--uncertain", text="Meaning of -1: ignore (unannotated), positive, negative.")
]
LabelNames = Annotated[
    Path | None, _option("--label-names", text="TOML file that maps label names to class names.")
]
Clients = Annotated[
    int | None, _option("--clients", text="Number of clients to split the images among.")
]
MethodName = Annotated[
    str,
    typer.Option(
        "--method",
        autocompletion=completing(all_methods),
        help="A name of `fedquilt list methods`.",
        rich_help_panel=PANEL,
    ),
]
Size = Annotated[
    int, _option("--size", text="Image width and height in pixels; 64 is 12 times as fast.")
]
Grey = Annotated[bool, _option("--grey", text="Use one channel instead of three.")]
Backbone = Annotated[str, _option("--backbone", text="A built-in network or a timm name.")]
Weights = Annotated[str, _option("--weights", text="random, timm, or a .safetensors file.")]


def names_of(text: str | None) -> list[str] | None:
    """The names in a text that separates them by commas."""
    if text is None:
        return None
    return [name.strip() for name in text.split(",") if name.strip()]


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Where images and labels are, with the defaults of the command line."""

    data: Path | None = None
    labels: Path | None = None
    image_column: str = "image"
    site_column: str | None = None
    patient_column: str | None = None
    split_column: str | None = None
    classes: str | None = None
    ignore_columns: str | None = None
    uncertain: str = "ignore"
    label_names: Path | None = None

    @classmethod
    def of(cls: type[Options], given: Mapping[str, Any]) -> Options:
        """Build the options from a command's arguments, which have the same names."""
        return cls(**{field.name: given[field.name] for field in fields(cls)})

    def given(self) -> list[str]:
        """Return the options that differ from their defaults."""
        changed = [each for each in fields(self) if getattr(self, each.name) != each.default]
        return [f"--{each.name.replace('_', '-')}" for each in changed]

    def with_recognised_columns(self: Options) -> Options:
        """Use columns named site, patient or split for what they are, and say so."""
        if self.labels is None:
            return self
        from fedquilt.data.label_files.csv_rows import recognised_columns

        named = (self.site_column, self.patient_column, self.split_column)
        others = (*(names_of(self.classes) or ()), *(names_of(self.ignore_columns) or ()))
        taken = {*others, *(name for name in named if name)}
        found = {
            role: column
            for role, column in recognised_columns(self.labels, self.image_column, taken).items()
            if getattr(self, f"{role}_column") is None
        }
        for role, column in found.items():
            note(
                f"the column {column!r} is used as the {role} column; if it is something else, "
                f"name it in --ignore-columns"
            )
        recognised: dict[str, Any] = {f"{role}_column": name for role, name in found.items()}
        return replace(self, **recognised)

    def source_settings(self) -> dict[str, Any]:
        """Return a recipe's ``data`` table, with absolute paths."""
        if self.data is None or self.labels is None:
            raise UserError("own data need both --data (the folder) and --labels (the CSV file)")
        return {
            "name": "folder",
            "folder": str(self.data.resolve()),
            "labels": str(self.labels.resolve()),
            "image_column": self.image_column,
            "site_column": self.site_column,
            "patient_column": self.patient_column,
            "split_column": self.split_column,
            "classes": names_of(self.classes),
            "ignore_columns": names_of(self.ignore_columns) or [],
            "uncertain": self.uncertain,
            "label_names": str(self.label_names.resolve()) if self.label_names else None,
        }


@dataclass(frozen=True, kw_only=True)
class OwnData(FolderOptions):
    """The options of ``fedquilt run``: also the clients, the method and the model."""

    clients: int | None = None
    method: str = "fedmlp"
    size: int = DEFAULT_SIZE
    grey: bool = False
    backbone: str = "small-resnet"
    weights: str = "random"

    def recipe(self, overrides: Sequence[str]) -> Recipe:
        """Return the recipe: sites are the clients, or images are split evenly among clients."""
        from fedquilt.recipes.recipe import recipe_from, with_overrides
        from fedquilt.recipes.suited_settings import suited_settings

        self._check_paths()
        given = self.with_recognised_columns()
        is_file = self.weights not in ("random", "timm")
        weights = str(Path(self.weights).resolve()) if is_file else self.weights
        settings = {
            "data": {
                **given.source_settings(),
                "size": self.size,
                "channels": 1 if self.grey else 3,
            },
            "partition": self._partition(given.site_column),
            "annotation": {"name": "recorded"},
            "model": {"backbone": self.backbone, "weights": weights},
            "method": {"name": canonical(self.method, all_methods())},
        }
        settings = with_overrides(settings, overrides)
        recipe = recipe_from(settings)
        suited = suited_settings(recipe, settings["method"])
        if not suited.settings:
            return recipe
        note(suited.sentence(settings["method"]["name"]))
        return recipe_from({**settings, "method": {**settings["method"], **suited.settings}})

    def _check_paths(self) -> None:
        if self.data is not None and not self.data.is_dir():
            raise UserError(f"--data: there is no folder {self.data}; give the images' folder")
        if self.labels is not None and not self.labels.is_file():
            raise UserError(f"--labels: there is no file {self.labels}; give a CSV file")

    def _partition(self, site_column: str | None) -> dict[str, Any]:
        """Sites are the clients; with --clients a site column may only have been recognised."""
        if self.site_column is not None and self.clients is not None:
            raise UserError("give --site-column or --clients, not both: each site is a client")
        if self.clients is None and site_column is not None:
            return {"name": "natural", "by": "site"}
        if self.clients is None:
            raise UserError(
                "no clients are given: name the column with the sites by --site-column, or split "
                "the images evenly with --clients N"
            )
        return {"name": "iid", "clients": self.clients, "remainder": "spread"}
