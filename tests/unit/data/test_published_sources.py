"""What all sources of published image files have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from published_folders import (
    write_chestxray14,
    write_flair,
    write_ham10000,
    write_ms_coco,
    write_pascal_voc,
    write_rsna_ich,
)
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.data.source import Source, Splits
from fedquilt.data.sources import SOURCES
from fedquilt.data.sources.pascal_voc.labels import OBJECTS
from fedquilt.registry import find
from fedquilt.strict_reading import plain, read

WRITERS: dict[str, Callable[[Path], Path]] = {
    "chestxray14": write_chestxray14,
    "flair": write_flair,
    "ham10000": write_ham10000,
    "ms-coco": write_ms_coco,
    "pascal-voc": lambda root: write_pascal_voc(root, OBJECTS),
    "rsna-ich": write_rsna_ich,
}
TABLES = {Source: ("data source", SOURCES)}

each_source = pytest.mark.parametrize("name", WRITERS)


def make(name: str, folder: Path, **settings: Any) -> Source:
    given = {"name": name, "folder": str(folder), "size": 4} | settings
    source: Source = read(Source, given, "data", TABLES)
    return source


def same(first: Splits, second: Splits) -> bool:
    pairs = ((first.train, second.train), (first.test, second.test))
    return all(
        (one.ids, one.classes, one.groups, one.sites)
        == (two.ids, two.classes, two.groups, two.sites)
        and torch.equal(one.images, two.images)
        and torch.equal(one.labels, two.labels)
        and torch.equal(one.known, two.known)
        for one, two in pairs
    )


@each_source
def test_prepared_data_is_what_a_load_gives(name: str, tmp_path: Path) -> None:
    folder = WRITERS[name](tmp_path / "files")
    plain_load = make(name, folder).load(tmp_path / "one")
    command = ["data", "prepare", name, "--from", str(folder), "--to", str(tmp_path / "two")]
    result = CliRunner().invoke(app, [*command, "--set", "size=4"])
    assert result.exit_code == 0, result.output
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "two").rglob("*.u8")}
    assert written
    assert same(make(name, folder).load(tmp_path / "two"), plain_load)
    # The load after the preparation decoded nothing again.
    now = {path: path.stat().st_mtime_ns for path in (tmp_path / "two").rglob("*.u8")}
    assert now == written


@each_source
def test_parts_share_one_mapping_and_no_group(name: str, tmp_path: Path) -> None:
    splits = make(name, WRITERS[name](tmp_path / "files")).load(tmp_path / "cache")
    train, test = splits.train, splits.test
    assert test.images.data_ptr() == train.images.data_ptr() + train.images.numel()
    assert train.classes == test.classes
    assert not set(train.ids) & set(test.ids)
    assert not set(train.groups or ()) & set(test.groups or ())


@each_source
def test_missing_folder_says_what_it_should_hold(name: str, tmp_path: Path) -> None:
    command = ["data", "prepare", name, "--from", str(tmp_path / "nowhere")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "there is no folder" in said
    assert "give the one that holds" in said


@each_source
def test_settings_survive_a_recipe_file(name: str) -> None:
    source = make(name, Path("somewhere"))
    assert read(Source, plain(source, TABLES), "data", TABLES) == source


@each_source
def test_page_of_a_source_explains_its_settings(name: str) -> None:
    kind = find("data source", SOURCES, name)
    path = Path(__file__).parents[3] / "src" / Path(*kind.__module__.split(".")[:-1])
    page = (path / "README.md").read_text(encoding="utf-8")
    missing = {field.name for field in fields(kind) if f"`{field.name}`" not in page}
    assert missing == {"folder"}
    for topic in ("**Licence**", "**Where to get it**", "**Checksums**", "## Statistics"):
        assert topic in page
