"""What all sources of published image files have in common."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import Result
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


def _images(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.*")) if path.suffix in ENDINGS]


@each_source
def test_images_are_found_in_any_folder_below(name: str, tmp_path: Path) -> None:
    """People unpack archives in their own way: here each into two folders of its own."""
    folder = WRITERS[name](tmp_path / "files")
    expected = make(name, folder).load(tmp_path / "one")
    for home in {folder / path.relative_to(folder).parts[0] for path in _images(folder)}:
        other = folder / "unpacked" / f"{home.name} archive"
        other.mkdir(parents=True)
        home.rename(other / home.name)
    assert same(make(name, folder).load(tmp_path / "two"), expected)


def test_an_image_in_two_unexpected_folders_is_refused(tmp_path: Path) -> None:
    folder = write_flair(tmp_path / "files")
    (folder / "small_images").rename(folder / "a")
    shutil.copytree(folder / "a", folder / "b")
    with pytest.raises(UserError, match=r"image 101 is in .*a.101\.jpg and in .*b.101\.jpg"):
        make("flair", folder).load(tmp_path / "cache")


def test_masks_with_the_names_of_photographs_are_no_photographs(tmp_path: Path) -> None:
    folder = WRITERS["pascal-voc"](tmp_path / "files")
    home = next(folder.rglob("JPEGImages"))
    (home.parent / "SegmentationClass").mkdir()
    (home / "000005.jpg").rename(home.parent / "SegmentationClass" / "000005.png")
    with pytest.raises(UserError, match="missing: 1 of 5 images"):
        make("pascal-voc", folder).load(tmp_path / "cache")


@each_source
def test_a_part_of_the_images_will_do_if_asked_for(name: str, tmp_path: Path) -> None:
    folder = WRITERS[name](tmp_path / "files")
    extra = {"validation_share": 0.0} if name == "ham10000" else {}
    extra |= {"split": "image"} if name == "rsna-ich" else {}
    whole = make(name, folder, **extra).load(tmp_path / "whole")
    gone = whole.train.ids[0]
    next(path for path in _images(folder) if path.stem == Path(gone).stem).unlink()
    command = ["data", "prepare", name, "--from", str(folder), "--to", str(tmp_path / "cache")]
    command += [word for key in ("size=4", *(f"{k}={v}" for k, v in extra.items()))
                for word in ("--set", key)]  # fmt: skip
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 1
    assert "to go on without them: `fedquilt data prepare --partial`" in said(refused)
    prepared = CliRunner().invoke(app, [*command, "--partial"])
    assert prepared.exit_code == 0, prepared.output
    setting = find("data source", SOURCES, name).goes_on_with
    assert "1 of" in said(prepared)
    assert "images missing and left out" in said(prepared)
    assert f"recipes that use it need data.{setting}" in said(prepared)
    key, value = setting.split("=")
    part = make(name, folder, **extra, **{key: {"true": True}.get(value, value)})
    splits = part.load(tmp_path / "cache")
    assert splits.missing_images == 1
    if name != "rsna-ich":  # it draws its splits from the slices that are there
        assert splits.train.ids == whole.train.ids[1:]
        assert splits.test.ids == whole.test.ids
        assert torch.equal(splits.train.images, whole.train.images[1:])
    assert gone not in {*splits.train.ids, *splits.test.ids}
    assert plain(make(name, folder, **extra), TABLES).keys() & {"partial"} == set()  # old hashes


def said(result: Result) -> str:
    return " ".join(result.output.split())


def test_a_packed_data_set_has_no_part() -> None:
    result = CliRunner().invoke(app, ["data", "prepare", "mnist", "--from", ".", "--partial"])
    assert result.exit_code == 1
    assert "'mnist' does not come as single image files" in said(result)


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
    with pytest.raises(UserError, match="1 image more than once, such as ISIC_0024308"):
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
