"""Options for a user's own folder of images, and the recipe they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fedquilt.cli.console import note
from fedquilt.core.errors import UserError

if TYPE_CHECKING:
    from fedquilt.recipes.recipe import Recipe

PANEL = "Own data"
Options = TypeVar("Options", bound="FolderOptions")


def _option(*names: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL)


DataFolder = Annotated[Path | None, _option("--data", text="Folder of the images.")]
LabelFile = Annotated[
    Path | None, _option("--labels", text="CSV: one row per image, 1, 0 or blank per class.")
]
ImageColumn = Annotated[str, _option("--image-column", text="Column of the image names.")]
SiteColumn = Annotated[
    str | None,
    _option("--site-column", "--sites-column", text="Column of the sites, which are the clients."),
]
PatientColumn = Annotated[
    str | None,
    _option("--patient-column", text="Column of the patients, who stay in one part."),
]
SplitColumn = Annotated[
    str | None, _option("--split-column", text="Column of train, val, test; else they are drawn.")
]
IgnoreColumns = Annotated[
    str | None, _option("--ignore-columns", text="Columns to pass over, commas between.")
]
Uncertain = Annotated[
    str, _option("--uncertain", text="What -1 means: ignore (not annotated), positive, negative.")
]
LabelNames = Annotated[
    Path | None, _option("--label-names", text="TOML file that translates label names.")
]
Clients = Annotated[
    int | None, _option("--clients", text="Without a site column: deal images out to so many.")
]
MethodName = Annotated[str, _option("--method", text="A name of `fedquilt list methods`.")]
Size = Annotated[int, _option("--size", text="Pixels a side.")]
Grey = Annotated[bool, _option("--grey", text="One channel instead of three.")]
Backbone = Annotated[str, _option("--backbone", text="A built-in network or one of timm.")]
Weights = Annotated[str, _option("--weights", text="random, timm, or a .safetensors file.")]


@dataclass(frozen=True, kw_only=True)
class FolderOptions:
    """Where images and labels are; the defaults are those of the command line."""

    data: Path | None = None
    labels: Path | None = None
    image_column: str = "image"
    site_column: str | None = None
    patient_column: str | None = None
    split_column: str | None = None
    ignore_columns: str | None = None
    uncertain: str = "ignore"
    label_names: Path | None = None

    @classmethod
    def of(cls: type[Options], given: Mapping[str, Any]) -> Options:
        """From a verb's arguments, which have the same names."""
        return cls(**{field.name: given[field.name] for field in fields(cls)})

    def given(self) -> list[str]:
        """The options that are not left at their defaults."""
        changed = [each for each in fields(self) if getattr(self, each.name) != each.default]
        return [f"--{each.name.replace('_', '-')}" for each in changed]

    def source_settings(self) -> dict[str, Any]:
        """A recipe's ``data`` table, with paths that hold from anywhere."""
        if self.data is None or self.labels is None:
            raise UserError("own data need both --data, the folder, and --labels, the CSV file")
        ignored = (self.ignore_columns or "").split(",")
        return {
            "name": "folder",
            "folder": str(self.data.resolve()),
            "labels": str(self.labels.resolve()),
            "image_column": self.image_column,
            "site_column": self.site_column,
            "patient_column": self.patient_column,
            "split_column": self.split_column,
            "ignore_columns": [name.strip() for name in ignored if name.strip()],
            "uncertain": self.uncertain,
            "label_names": str(self.label_names.resolve()) if self.label_names else None,
        }


@dataclass(frozen=True, kw_only=True)
class OwnData(FolderOptions):
    """Also who the clients are and what they train."""

    clients: int | None = None
    method: str = "fedmlp"
    size: int = 64
    grey: bool = False
    backbone: str = "small-resnet"
    weights: str = "random"

    def recipe(self, overrides: Sequence[str]) -> Recipe:
        """Sites are clients (or images are dealt evenly); annotations are as recorded."""
        from fedquilt.recipes.recipe import recipe_from, with_overrides

        is_file = self.weights not in ("random", "timm")
        weights = str(Path(self.weights).resolve()) if is_file else self.weights
        settings = {
            "data": {
                **self.source_settings(),
                "size": self.size,
                "channels": 1 if self.grey else 3,
            },
            "partition": self._partition(),
            "annotation": {"name": "recorded"},
            "model": {"backbone": self.backbone, "weights": weights},
            "method": {"name": self.method},
        }
        recipe = recipe_from(with_overrides(settings, overrides))
        warmup = getattr(recipe.method, "warmup_rounds", 0)
        if warmup < recipe.rounds or any("method.warmup_rounds" in each for each in overrides):
            return recipe
        shorter = recipe.rounds // 2
        note(
            f"a warm-up of {warmup} rounds would fill all {recipe.rounds}: it is cut to {shorter}; "
            "choose another with --set method.warmup_rounds=N"
        )
        changed = [*overrides, f"method.warmup_rounds={shorter}"]
        return recipe_from(with_overrides(settings, changed))

    def _partition(self) -> dict[str, Any]:
        if self.site_column is not None:
            if self.clients is not None:
                raise UserError("give --site-column or --clients, not both: sites are clients")
            return {"name": "natural", "by": "site"}
        if self.clients is None:
            raise UserError(
                "who are the clients? Name the column of the sites with --site-column, "
                "or deal the images out evenly with --clients N"
            )
        return {"name": "iid", "clients": self.clients, "remainder": "spread"}
