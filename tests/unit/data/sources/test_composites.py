"""The invariants of composite data sets, on small files in the published layouts."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.packed_files import (
    cifar_images,
    mnist_images,
    write_cifar,
    write_medmnist,
    write_mnist,
)

from fedquilt.core.errors import UserError
from fedquilt.data.sources.composites.load import (
    Cifar10Composites,
    DermaMnistComposites,
    MnistComposites,
)
from fedquilt.data.sources.composites.paint import paint_rows
from fedquilt.data.sources.composites.plan import Layout, draw_plan, rolled, towards_centre

CORNERS = {*range(8), *range(25, 33)}  # 32 - shift, or shift, for shifts of 0 to 7


@pytest.fixture
def source(tmp_path: Path, monkeypatch) -> Cifar10Composites:
    folder = write_cifar(tmp_path / "data", monkeypatch)
    return Cifar10Composites(folder=str(folder), singles=15, pairs=6, test_singles=3, test_pairs=2)


def bounds(canvas: torch.Tensor) -> tuple[int, int, int, int]:
    """Top, left, height and width of what is not black."""
    rows, columns = (canvas.amax(0).amax(axis).nonzero().flatten() for axis in (1, 0))
    return int(rows[0]), int(columns[0]), len(rows), len(columns)


def test_canvas_counts(source, tmp_path: Path) -> None:
    splits = source.load(tmp_path / "cache")
    assert splits.train.images.shape == (10 * 15 + 45 * 6, 3, 64, 64)
    assert splits.test.images.shape == (10 * 3 + 45 * 2, 3, 64, 64)
    assert splits.train.known.all()
    assert splits.train.ids[3] == "train-00003"
    labels = splits.train.labels
    assert torch.bincount(labels.sum(1)).tolist() == [0, 150, 270]
    assert labels.sum(0).tolist() == [15 + 9 * 6] * 10  # each class is in nine pairs
    for first, second in combinations(range(10), 2):
        assert int((labels[:, first] & labels[:, second]).sum()) == 6


def test_singles_are_whole_images_near_two_corners(source, tmp_path: Path) -> None:
    train = replace(source, singles=20).load(tmp_path / "cache").train
    originals = {image.tobytes() for image in cifar_images(0, 200)}
    tops = []
    for canvas, labels in zip(train.images[:200], train.labels):
        top, left, height, width = bounds(canvas)
        assert (height, width) == (32, 32)
        assert top == left, "the shift is the same on both axes"
        image = canvas[:, top : top + 32, left : left + 32]
        assert image.numpy().tobytes() in originals
        assert int(image[1, 0, 0]) - 1 == int(labels.argmax())  # green encodes the class
        tops.append(top)
    assert set(tops) == CORNERS
    # A fair coin: 200 throws are within 100 +- 35 but for one case in a million.
    assert 65 < sum(top < 16 for top in tops) < 135


def test_a_pair_is_the_maximum_of_two_padded_images_in_opposite_corners() -> None:
    """Against padding as the recipe words it: 32 - shift on one side, shift on the other."""
    images, targets = cifar_images(0, 200), np.arange(200) % 10
    layout = Layout(pad=32, placing=towards_centre, single_corner="coin")
    names = ("test", 0, "train")
    plan = draw_plan(targets, tuple("abcdefghij"), layout, singles=0, pairs=10, names=names)
    painted = paint_rows(plan, images, 64, range(450))
    shifts = set()
    for row in range(450):
        padded = []
        for pieces in (plan.first, plan.second):
            assert pieces.row[row] == row
            before, after = int(pieces.top[row]), 32 - int(pieces.top[row])
            sides = ((0, 0), (before, after), (before, after))
            padded.append(np.pad(images[pieces.image[row]], sides))
            shifts.add(before)
        assert (plan.first.top[row] < 16) != (plan.second.top[row] < 16)
        assert np.array_equal(painted[row], np.maximum(*padded))
        present = {int(targets[pieces.image[row]]) for pieces in (plan.first, plan.second)}
        assert set(np.flatnonzero(plan.labels[row])) == present
    assert shifts == CORNERS
    shift = (np.minimum(each.top, 32 - each.top) for each in (plan.first, plan.second))
    assert (next(shift) != next(shift)).any(), "each image has its own shift"


def test_no_image_is_used_twice_in_a_group_of_canvases() -> None:
    layout = Layout(pad=32, placing=towards_centre, single_corner="coin")
    names = ("test", 0, "train")
    plan = draw_plan(np.arange(60) % 2, ("a", "b"), layout, singles=30, pairs=30, names=names)
    assert sorted(plan.first.image[:30].tolist()) == list(range(0, 60, 2))
    assert sorted(plan.first.image[60:].tolist()) == list(range(0, 60, 2))
    assert sorted(plan.second.image.tolist()) == list(range(1, 60, 2))


def test_test_canvases_hold_test_images_only(source, tmp_path: Path) -> None:
    splits = replace(source, test_singles=4, test_pairs=4).load(tmp_path / "cache")
    # Red encodes the image: 1 to 200 are training images, 201 to 240 test images.
    assert int(splits.train.images[:, 0].max()) <= 200
    test_red = splits.test.images[:, 0].unique().tolist()
    assert test_red[0] == 0
    assert min(test_red[1:]) > 200


def test_seeds_and_counts(source, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    train = source.load(cache).train
    again = source.load(tmp_path / "other").train
    assert torch.equal(train.images, again.images)
    other = replace(source, seed=1).load(cache).train
    assert torch.equal(train.labels, other.labels)
    assert not torch.equal(train.images, other.images)
    # Each group of canvases has its own generator, so pairs do not depend on singles.
    without = replace(source, singles=0).load(cache).train
    assert torch.equal(without.images, train.images[150:])


def test_the_pixels_never_change(source, tmp_path: Path) -> None:
    splits = source.load(tmp_path / "cache")
    both = splits.train.images.numpy().tobytes() + splits.test.images.numpy().tobytes()
    assert hashlib.sha256(both).hexdigest()[:16] == "bf6c14b7e720f659"


def test_resized_canvases_are_bilinear(source, tmp_path: Path) -> None:
    plain = source.load(tmp_path / "cache").train
    large = replace(source, size=128).load(tmp_path / "cache").train
    assert large.images.shape == (420, 3, 128, 128)
    for row in (0, 419):
        picture = Image.fromarray(plain.images[row].numpy().transpose(1, 2, 0))
        pixels = np.asarray(picture.resize((128, 128), Image.Resampling.BILINEAR))
        assert np.array_equal(large.images[row].numpy(), pixels.transpose(2, 0, 1))


def test_fewer_classes_are_the_first(source, tmp_path: Path) -> None:
    train = replace(source, classes=3).load(tmp_path / "cache").train
    assert train.classes == ("airplane", "automobile", "bird")
    assert len(train) == 3 * 15 + 3 * 6
    assert set(train.images[:, 1].unique().tolist()) == {0, 1, 2, 3}  # green: class + 1, or black


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"singles": 21},
            "21 images of 'airplane' are needed in the train split, but there are 20",
        ),
        (
            {"test_pairs": 5},
            "5 images of 'airplane' are needed in the test split, but there are 4",
        ),
        ({"classes": 11}, "classes is 11; expected at most 10"),
        ({"classes": 1}, "classes is 1; expected at least 2"),
        ({"canvas": 31}, "canvas is 31; expected at least 32"),
        ({"pairs": -1}, "pairs is -1; expected at least 0"),
        ({"size": 0}, "size is 0; expected at least 1"),
        ({"singles": 0, "pairs": 0}, "singles and pairs are both 0"),
    ],
)
def test_impossible_settings_are_refused(source, tmp_path: Path, settings, message) -> None:
    with pytest.raises(UserError, match=message):
        replace(source, **settings).load(tmp_path / "cache")


def test_mnist_digits_roll_around_the_edge() -> None:
    """Against numpy's own roll of an image padded in a corner."""
    images, targets = mnist_images(0, 80)[:, None], np.arange(80) % 10
    layout = Layout(pad=28, placing=rolled, single_corner="lower right")
    names = ("test", 0, "train")
    plan = draw_plan(targets, tuple("abcdefghij"), layout, singles=8, pairs=8, names=names)
    painted = paint_rows(plan, images, 56, range(len(plan.labels)))
    downs, rights = set(), set()
    for row in range(len(plan.labels)):
        expected = np.zeros((1, 56, 56), np.uint8)
        for pieces in (plan.first, plan.second):
            for place in np.flatnonzero(pieces.row == row):
                top, left = int(pieces.top[place]), int(pieces.left[place])
                corner = 28 if top >= 28 else 0
                assert corner == 28 or row >= 80, "singles are in the lower right corner"
                before = (corner, 28 - corner)
                padded = np.pad(images[pieces.image[place]], ((0, 0), before, before))
                shift = (top - corner, left - corner)
                downs.add(shift[0])
                rights.add(shift[1])
                np.maximum(expected, np.roll(padded, shift, (1, 2)), out=expected)
        assert np.array_equal(painted[row], expected)
    assert downs == rights == set(range(7))
    assert (plan.first.top != plan.first.left).any(), "the axes are shifted apart"


def test_mnist_composites_from_files(tmp_path: Path, monkeypatch) -> None:
    folder = write_mnist(tmp_path / "data", monkeypatch)
    source = MnistComposites(folder=str(folder), singles=8, pairs=3, test_singles=4, test_pairs=1)
    splits = source.load(tmp_path / "cache")
    assert splits.train.images.shape == (10 * 8 + 45 * 3, 1, 56, 56)
    assert splits.test.images.shape == (10 * 4 + 45, 1, 56, 56)
    assert splits.train.classes[9] == "digit 9"
    grey = set(splits.test.images.unique().tolist()) - {0, 255}
    assert min(grey) > 80, "training digits are 1 to 80"
    # A whole digit is always there, though it may be in pieces: 783 plain pixels and a bright one.
    assert ((splits.train.images[:80] > 0).flatten(1).sum(1) == 784).all()


def test_dermamnist_composites_keep_the_long_tail(tmp_path: Path) -> None:
    counts = {
        "train": (60, 52, 55, 50, 70, 90, 51),
        "val": (1,) * 7,
        "test": (20, 14, 15, 16, 17, 40, 18),
    }
    labels = {
        split: np.repeat(np.arange(7, dtype=np.uint8), each)[:, None]
        for split, each in counts.items()
    }
    write_medmnist(tmp_path / "dermamnist.npz", labels, channels=3)
    splits = DermaMnistComposites(folder=str(tmp_path)).load(tmp_path / "cache")
    assert splits.train.images.shape == (428 + 7 + 21 * 50, 3, 56, 56)
    assert splits.test.images.shape == (140 + 21 * 14, 3, 56, 56)
    singles = splits.train.labels.sum(1) == 1
    assert splits.train.labels[singles].sum(0).tolist() == [each + 1 for each in counts["train"]]
    assert splits.train.labels[~singles].sum(0).tolist() == [6 * 50] * 7
    dropped = DermaMnistComposites(folder=str(tmp_path), validation="drop").load(tmp_path / "cache")
    assert len(dropped.train) == 428 + 21 * 50


@pytest.mark.shared
def test_real_composites_have_the_published_counts(shared_folder: Path, tmp_path: Path) -> None:
    splits = Cifar10Composites(folder=str(shared_folder / "data")).load(tmp_path)
    for split, singles, pairs in ((splits.train, 3100, 200), (splits.test, 800, 50)):
        assert len(split) == 10 * singles + 45 * pairs  # 40,000 and 10,250
        assert torch.bincount(split.labels.sum(1)).tolist() == [0, 10 * singles, 45 * pairs]
        assert split.labels.sum(0).tolist() == [singles + 9 * pairs] * 10
    # 31,000 + 2 * 9,000 labels on 40,000 canvases
    assert splits.train.labels.sum() / len(splits.train) == pytest.approx(1.225)
