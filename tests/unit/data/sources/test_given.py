"""Data given in Python: arrays, datasets and files, with every mistake that has an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

import fedquilt
from fedquilt.core.errors import UserError
from fedquilt.data.images.decoding import Decoding
from fedquilt.data.sources.given.load import Given
from fedquilt.recipes.recipe import recipe_from

NAN = float("nan")
PIXELS = np.arange(6 * 4, dtype=np.uint8).reshape(6, 1, 2, 2)
LABELS = [[0, 1], [1, 0], [1, 1], [0, 0], [1, 0], [0, 1]]


def settings(data: Given, **changes: Any) -> dict[str, Any]:
    return {
        "data": data,
        "partition": {"name": "iid", "clients": 2},
        "annotation": {"name": "recorded"},
        "method": {"name": "fedavg-pl"},
        "rounds": 1,
    } | changes


def test_labels_patients_and_sites_follow_their_images(tmp_path: Path):
    split = ["train", "test", "train", "val", "test", "train"]
    labels = [[0, NAN], [1, 0], [NAN, 1], [0, 0], [1, 0], [0, 1]]
    data = fedquilt.from_arrays(
        PIXELS, labels, classes=["a", "b"], patients=[1, 2, 3, 4, 5, 6], sites="xyxyxy", split=split
    )
    splits = data.load(tmp_path)
    assert splits.train.images[:, 0, 0, 0].tolist() == [0, 8, 12, 20]
    assert splits.train.known.tolist() == [[True, False], [False, True], [True, True], [True, True]]
    assert (splits.train.labels * splits.train.known).tolist() == [[0, 0], [0, 1], [0, 0], [0, 1]]
    assert (splits.train.groups, splits.train.sites) == (("1", "3", "4", "6"), tuple("xxyy"))
    assert splits.is_validation is not None
    assert splits.is_validation.tolist() == [False, False, True, False]
    assert splits.test.ids == ("image-00001", "image-00004")
    assert (data.images, data.shape, data.classes) == (6, (1, 2, 2), ("a", "b"))


@pytest.mark.parametrize(
    ("images", "first"),
    [
        (PIXELS[:, 0], [0, 1, 2, 3]),  # grey, without channels
        (PIXELS.transpose(0, 2, 3, 1), [0, 1, 2, 3]),  # channels last
        (torch.from_numpy(PIXELS).long(), [0, 1, 2, 3]),
        (PIXELS / 255.0, [0, 1, 2, 3]),
        (np.full((6, 1, 2, 2), 0.5, dtype=np.float32), [128] * 4),  # 127.5 is rounded to even
    ],
)
def test_images_become_bytes(images: Any, first: list[int], tmp_path: Path):
    train = (
        fedquilt.from_arrays(images, LABELS, split=["train"] * 5 + ["test"]).load(tmp_path).train
    )
    assert train.images.dtype == torch.uint8
    assert train.images.shape == (5, 1, 2, 2)
    assert train.images[0].flatten().tolist() == first


def test_a_test_part_of_its_own(tmp_path: Path):
    known = np.ones((6, 2), dtype=bool)
    known[0, 0] = False
    tested = (PIXELS[:3], LABELS[:3], known[:3])
    splits = fedquilt.from_arrays(PIXELS, LABELS, known, test=tested).load(tmp_path)
    assert (len(splits.train), len(splits.test)) == (6, 3)
    assert not bool(splits.test.known[0, 0])


def test_patients_stay_together_in_a_drawn_split(tmp_path: Path):
    patients = [0, 0, 1, 1, 2, 2]
    splits = fedquilt.from_arrays(PIXELS, LABELS, patients=patients, test_share=0.4).load(tmp_path)
    assert splits.train.groups is not None
    assert splits.test.groups is not None
    assert not set(splits.train.groups) & set(splits.test.groups)
    assert len(splits.train) + len(splits.test) == 6


def test_a_dataset_is_read_item_by_item(tmp_path: Path):
    pixels, labels = torch.from_numpy(PIXELS), torch.tensor(LABELS)
    dataset = TensorDataset(pixels, labels, labels == 1)
    splits = fedquilt.from_dataset(dataset, test=TensorDataset(pixels[:2], labels[:2])).load(
        tmp_path
    )
    assert torch.equal(splits.train.images, pixels)
    assert torch.equal(splits.train.known, labels == 1)
    assert bool(splits.test.known.all())
    assert splits.test.classes == ("class 0", "class 1")


def test_files_are_decoded_into_the_cache(tmp_path: Path):
    for number in range(5):
        Image.new("L", (8, 8), 50 * number).save(tmp_path / f"{number}.png")
    items = [(tmp_path / f"{n}.png", [n % 2, None]) for n in range(5)]
    data = fedquilt.from_files(
        items, size=4, channels=1, split=["train", "test", "train", "train", "train"]
    )
    splits = data.load(tmp_path / "cache")
    assert splits.train.images[:, 0, 0, 0].tolist() == [0, 100, 150, 200]
    assert splits.test.images.shape == (1, 1, 4, 4)
    assert splits.train.known.tolist() == [[True, False]] * 4
    assert data.decoding == Decoding(4, 1)


def test_content_changes_with_every_known_thing_and_nothing_else():
    def content(**changes: Any) -> str:
        given: dict[str, Any] = {
            "images": PIXELS,
            "labels": LABELS,
            "split": ["train"] * 5 + ["test"],
        }
        return fedquilt.from_arrays(**given | changes).content

    blank = np.ones((6, 2), dtype=bool)
    blank[2, 1] = False
    other = np.array(LABELS)
    other[2, 1] = 0
    assert content() == content(known=np.ones((6, 2), dtype=bool))
    different = [
        content(),
        content(images=PIXELS + 1),
        content(labels=other),
        content(known=blank),
        content(sites="xxxyyy"),
        content(split=["train"] * 4 + ["test"] * 2),
        content(split=["train"] * 4 + ["val", "test"]),
    ]
    assert len(set(different)) == len(different)
    # What an unannotated label says is no content.
    assert content(known=blank) == content(known=blank, labels=other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"images": PIXELS[:5]}, "found 6 rows of labels for 5 images"),
        ({"images": PIXELS.reshape(6, 4)}, r"images must have the shape .*found \(6, 4\)"),
        ({"images": PIXELS / 10.0}, "floats from 0 to 1, found torch.float64 from 0 to 2.3"),
        ({"images": PIXELS / 255.0 - 0.5}, "fedquilt normalises them itself"),
        ({"labels": [0, 1, 1, 0, 1, 0]}, r"labels must be numbers of shape \(N, C\)"),
        ({"labels": [[0, -1]] * 6}, "if -1 is not annotated, give known=labels >= 0"),
        ({"labels": [[0, 2]] * 6}, "found 2 in row 0, column 1, and 6 such values in all$"),
        ({"known": [[1, 1]] * 6}, r"known must be bool of shape \(6, 2\).*found int64"),
        ({"classes": ["a", "a"]}, "classes must be 2 distinct names"),
        ({"sites": ["x"]}, "found 1 site for 6 images"),
        ({"split": ["train"]}, "found 1 entry of split for 6 images"),
        ({"split": ["train", "tets"] * 3}, "'tets' is no split; did you mean 'test'"),
        (
            {"split": ["train", "test"] * 3, "patients": [1] * 6},
            "patients with images in more than",
        ),
        ({"split": ["test"] * 6}, "leaves the train or the test split empty"),
        ({"patients": [1] * 6}, "found 1 patient to draw a test part from"),
        ({"test_share": 2.0}, "test_share is 2.0; expected a share between 0 and 1"),
        ({"test": (PIXELS,)}, "test must be "),
        ({"test": (PIXELS[..., :1], LABELS)}, "bring them to one shape"),
        ({"test": (PIXELS, LABELS), "split": ["train"] * 6}, "give split or test, not both"),
    ],
)
def test_mistakes_are_answered(changes: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        fedquilt.from_arrays(**{"images": PIXELS, "labels": LABELS} | changes)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([("no.png", [0, 1])], "1 of 1 image files do not exist, the first is no.png"),
        ([("a.png", [0, 1]), ("b.png", [0])], "found rows of 1, 2 labels"),
        ([("a.png", [0]), ("a.png", [1])], "1 image files are given twice"),
    ],
)
def test_mistakes_in_lists_of_files_are_answered(items: Any, message: str):
    with pytest.raises(UserError, match=message):
        fedquilt.from_files(items, split=["train", "test"][: len(items)], test_share=0.5)


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "the dataset has no items"),
        ([PIXELS[0]], r"items of the dataset must be \(image, labels\)"),
        ([(PIXELS[0], [0]), (PIXELS[0, :, :1], [1])], "images of the dataset have 2 shapes"),
    ],
)
def test_mistakes_in_datasets_are_answered(items: Any, message: str):
    with pytest.raises(UserError, match=message):
        fedquilt.from_dataset(items)


def test_a_recipe_holds_the_settings_and_not_the_data(tmp_path: Path):
    data = fedquilt.from_arrays(PIXELS, LABELS, split=["train"] * 5 + ["test"])
    recipe = recipe_from(settings(data))
    stored = recipe_from(recipe.to_dict())
    assert stored == recipe
    assert stored.hash == recipe.hash
    with pytest.raises(UserError, match=r"6 images, sha256:.*were given in Python"):
        stored.data.load(tmp_path)


def test_resuming_with_other_data_is_refused(tmp_path: Path):
    pixels = np.zeros((12, 1, 16, 16), np.uint8)
    labels = LABELS * 2
    recipe = recipe_from(settings(fedquilt.from_arrays(pixels, labels)))
    fedquilt.run(recipe, tmp_path / "run")
    other = recipe_from(settings(fedquilt.from_arrays(pixels + 1, labels)))
    with pytest.raises(UserError, match=r"another recipe; it differs in data.content"):
        fedquilt.run(other, tmp_path / "run", resume=True)
    assert fedquilt.run(recipe, tmp_path / "run", resume=True).result["rounds"] == 1
