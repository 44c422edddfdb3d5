"""What all sources of published image files have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from support.published_folders import (
    write_chestxray14,
    write_flair,
    write_ham10000,
    write_ms_coco,
    write_pascal_voc,
    write_rsna_ich,
)
from typer.testing import CliRunner

from fedquilt.cli.main import app
from fedquilt.core.errors import UserError
from fedquilt.core.registry import find
from fedquilt.core.settings import plain, read
from fedquilt.data.source import Source, Splits
from fedquilt.data.sources import SOURCES
from fedquilt.data.sources.pascal_voc.labels import OBJECTS

WRITERS: dict[str, Callable[[Path], Path]] = {
    "chestxray14": write_chestxray14,
    "flair": write_flair,
    "ham10000": write_ham10000,
    "ms-coco": write_ms_coco,
    "pascal-voc": lambda root: write_pascal_voc(root, OBJECTS),
    "rsna-ich": write_rsna_ich,
}
ENDINGS = (".png", ".jpg", ".dcm")
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
def test_splits_share_one_mapping_and_no_group(name: str, tmp_path: Path) -> None:
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
    assert "give the folder that holds" in said


@each_source
def test_damaged_images_are_named_with_their_origin(name: str, tmp_path: Path) -> None:
    folder = WRITERS[name](tmp_path / "files")
    image = next(path for path in sorted(folder.rglob("*.*")) if path.suffix in ENDINGS)
    image.write_bytes(image.read_bytes()[:-40])
    source = make(name, folder, **{"split": "image"} if name == "rsna-ich" else {})
    with pytest.raises(UserError, match="image files that cannot be used: 1;") as caught:
        source.load(tmp_path / "cache")
    assert f"{image}: " in str(caught.value)
    assert "download them again from" in str(caught.value)
    assert "data check" not in str(caught.value)  # that verb is for own images


@pytest.mark.parametrize("replacement", ["link", "folder"])
def test_a_broken_link_or_a_folder_is_no_image(replacement: str, tmp_path: Path) -> None:
    folder = write_ham10000(tmp_path / "files")
    image = folder / "HAM10000_images_part_1" / "ISIC_0024306.jpg"
    image.unlink()
    if replacement == "link":
        image.symlink_to(tmp_path / "nowhere")
    else:
        image.mkdir()
    with pytest.raises(UserError, match=r"holds no image ISIC_0024306.*1 of \d+ images"):
        make("ham10000", folder, validation_share=0.0).load(tmp_path / "cache")


def test_images_and_folders_without_permission_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File modes do not stop tests that run as root, so the error is simulated."""

    def refuse(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    source = make("ham10000", write_ham10000(tmp_path / "files"))
    with monkeypatch.context() as patch:
        patch.setattr("fedquilt.data.images.decoding._read_image", refuse)
        with pytest.raises(UserError, match=r"ISIC_\d+\.jpg: no permission to read it"):
            source.load(tmp_path / "cache")
    monkeypatch.setattr("fedquilt.data.images.index.os.scandir", refuse)
    with pytest.raises(UserError, match=r"files cannot be read \(Permission denied\)"):
        source.load(tmp_path / "cache")


def test_an_image_that_is_listed_twice_is_named(tmp_path: Path) -> None:
    folder = write_ham10000(tmp_path / "files")
    path = folder / "HAM10000_metadata.csv"
    path.write_text(path.read_text() + path.read_text().splitlines()[3] + "\n")
    with pytest.raises(UserError, match="1 images more than once, such as ISIC_0024308"):
        make("ham10000", folder).load(tmp_path / "cache")


@each_source
def test_settings_survive_a_recipe_file(name: str) -> None:
    source = make(name, Path("somewhere"))
    assert read(Source, plain(source, TABLES), "data", TABLES) == source


@each_source
def test_page_of_a_source_explains_its_settings(name: str) -> None:
    kind = find("data source", SOURCES, name)
    path = Path(__file__).parents[4] / "src" / Path(*kind.__module__.split(".")[:-1])
    page = (path / "README.md").read_text(encoding="utf-8")
    missing = {field.name for field in fields(kind) if f"`{field.name}`" not in page}
    assert missing == {"folder"}
    for topic in ("**Licence**", "**Where to get it**", "**Checksums**", "## Statistics"):
        assert topic in page
