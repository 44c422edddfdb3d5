"""FLAIR, whose users are the clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.published_folders import write_flair

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import allocate
from fedquilt.data.annotations.rules import Full
from fedquilt.data.partitions.natural import Natural
from fedquilt.data.sources.flair.load import Flair


def make(root: Path, **settings: object) -> Flair:
    return Flair(**({"folder": str(root), "size": 4} | settings))  # type: ignore[arg-type]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_flair(tmp_path / "flair")


def test_coarse_labels_and_official_split(root: Path, tmp_path: Path) -> None:
    splits = make(root).load(tmp_path / "cache")
    assert splits.train.classes == ("animal", "food", "structure")
    assert splits.train.ids == ("101", "102", "103")  # without 104, which is for validation
    assert splits.test.ids == ("105", "106")
    assert splits.train.labels.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert splits.test.labels.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert splits.train.known.all()
    assert splits.train.images[:, 0, 0, 0].tolist() == pytest.approx([0, 10, 20], abs=1)
    assert splits.test.images[:, 0, 0, 0].tolist() == pytest.approx([40, 50], abs=1)
    assert not set(splits.train.groups or ()) & set(splits.test.groups or ())


def test_fine_labels_keep_classes_of_all_splits(root: Path, tmp_path: Path) -> None:
    splits = make(root, grain="fine").load(tmp_path / "cache")
    assert splits.train.classes == ("bread", "cat", "dog", "structure", "waffle")
    assert splits.train.labels.tolist() == [[0, 1, 1, 0, 0], [1, 0, 1, 0, 0], [0, 0, 0, 1, 0]]


def test_validation_users_can_train(root: Path, tmp_path: Path) -> None:
    splits = make(root, validation="train").load(tmp_path / "cache")
    assert splits.train.ids == ("101", "102", "103", "104")
    assert splits.test.ids == ("105", "106")


def test_the_validation_split_has_two_names(root: Path, tmp_path: Path) -> None:
    path = root / "labels_and_metadata.json"
    path.write_text(path.read_text().replace('"val"', '"dev"'))
    assert make(root).load(tmp_path / "cache").train.ids == ("101", "102", "103")
    train = make(root, validation="train").load(tmp_path / "cache").train
    assert train.ids == ("101", "102", "103", "104")


@pytest.mark.parametrize("by", ["site", "patient"])
def test_users_are_natural_clients(root: Path, tmp_path: Path, by: str) -> None:
    train = make(root).load(tmp_path / "cache").train
    allocation = allocate(train, Natural(by=by), Full(), seed=0)  # type: ignore[arg-type]
    held = {each.name: each.indices.tolist() for each in allocation.holdings}
    assert held == {"7@N00": [0, 1], "8@N01": [2]}


def test_missing_files_are_named(root: Path, tmp_path: Path) -> None:
    (root / "small_images" / "104.jpg").unlink()  # not needed: its user is left out
    make(root).load(tmp_path / "cache")
    (root / "small_images" / "106.jpg").unlink()
    with pytest.raises(UserError, match=r"no image 106.*apple/ml-flair.*1 of 5.*small_images/"):
        make(root).load(tmp_path / "other")
    (root / "labels_and_metadata.json").unlink()
    with pytest.raises(UserError, match=r"holds no labels_and_metadata\.json"):
        make(root).load(tmp_path / "cache")


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ({"partition": "extra"}, r"names the splits \['extra'\]"),
        ({"user_id": "7@N00"}, "puts a user in both train and test"),
        ({"labels": 3}, "unexpected layout .TypeError"),
    ],
)
def test_wrong_content_is_named(root: Path, entry: dict[str, object], found: str) -> None:
    path = root / "labels_and_metadata.json"
    entries = json.loads(path.read_text())
    entries[-1] |= entry
    path.write_text(json.dumps(entries))
    with pytest.raises(UserError, match=rf"labels_and_metadata\.json .*{found}"):
        make(root).labels()


def test_wrong_layout_is_named(root: Path) -> None:
    path = root / "labels_and_metadata.json"
    entries = json.loads(path.read_text())
    del entries[2]["image_id"]
    path.write_text(json.dumps(entries))
    with pytest.raises(UserError, match=r"unexpected layout .KeyError: 'image_id'"):
        make(root).labels()
    path.write_text("[]")
    with pytest.raises(UserError, match="is an empty list"):
        make(root).labels()


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"grain": "corse"}, "did you mean 'coarse'"),
        ({"validation": "leave_out"}, "did you mean 'leave-out'"),
        ({"fit": "none"}, "fit is 'none'"),
        ({"size": 0}, "size is 0"),
    ],
)
def test_settings_are_checked(settings: dict[str, object], hint: str) -> None:
    with pytest.raises(UserError, match=hint):
        make(Path("x"), **settings)
