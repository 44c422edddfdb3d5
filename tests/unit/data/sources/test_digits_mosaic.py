from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from fedquilt.core.errors import UserError
from fedquilt.data.sources.digits_mosaic.load import DigitsMosaic

CACHE = Path("unused")


@pytest.fixture(scope="module")
def default():
    return DigitsMosaic().load(CACHE)


def cells(image: torch.Tensor) -> list[bytes]:
    """The four 8 x 8 cells of a 16 x 16 canvas that are not black."""
    quarters = image.unfold(0, 8, 8).unfold(1, 8, 8).reshape(4, 8, 8)
    return [quarter.numpy().tobytes() for quarter in quarters if quarter.any()]


def test_the_default_is_the_documented_data_set(default):
    assert default.train.images.shape == (500, 1, 16, 16)
    assert default.test.images.shape == (800, 1, 16, 16)
    assert default.train.classes == ("digit 0", "digit 1", "digit 2", "digit 3", "digit 4")
    assert default.train.ids[17] == "train-00017"
    assert default.test.ids[0] == "test-00000"
    assert default.train.known.all()
    # The README's table.
    assert default.train.labels.sum(0).tolist() == [187, 220, 206, 182, 194]
    assert default.test.labels.sum(0).tolist() == [287, 297, 337, 326, 351]
    assert np.bincount(default.train.labels.sum(1)).tolist() == [0, 174, 163, 163]


def test_the_pixels_never_change(default):
    both = default.train.images.numpy().tobytes() + default.test.images.numpy().tobytes()
    assert hashlib.sha256(both).hexdigest()[:16] == "def63bc825e1f419"


def test_every_image_is_made_of_real_digits_of_exactly_its_labels(default):
    source = load_digits()
    scaled = np.rint(source.images * 255 / 16).astype(np.uint8)
    digit_of = {pixels.tobytes(): target for pixels, target in zip(scaled, source.target)}
    for image, labels in zip(default.train.images[:100, 0], default.train.labels[:100]):
        digits = sorted(digit_of[cell] for cell in cells(image))
        assert digits == labels.nonzero().flatten().tolist()


def test_no_digit_is_in_both_splits(default):
    train, test = (
        {cell for image in split.images[:, 0] for cell in cells(image)}
        for split in (default.train, default.test)
    )
    assert len(train) > 300
    assert len(test) > 300
    assert not train & test


def test_the_same_settings_give_the_same_images_and_other_seeds_others():
    first, again, other = (
        DigitsMosaic(train=20, test=20, seed=seed).load(CACHE) for seed in (3, 3, 4)
    )
    assert torch.equal(first.train.images, again.train.images)
    assert torch.equal(first.test.labels, again.test.labels)
    assert not torch.equal(first.train.images, other.train.images)
    assert not torch.equal(first.train.labels, first.test.labels)


def test_more_images_begin_with_the_same_images():
    few, many = (DigitsMosaic(train=count, test=1).load(CACHE).train for count in (10, 30))
    assert torch.equal(few.images, many.images[:10])


def test_wider_canvases_move_digits_within_cells_and_jitter_beyond_them():
    # On 20 px a cell is 10 px wide and a digit 8: three places on each axis of each cell.
    still = DigitsMosaic(canvas=20, digits_per_image=(1, 1), train=300, test=1)
    tops = {int(image.any(1).nonzero()[0]) for image in still.load(CACHE).train.images[:, 0]}
    assert {0, 1, 2, 10, 11, 12} <= tops
    # Every drawn digit begins in its first two rows, so none begins between two cells...
    assert not tops & set(range(4, 10))
    # ... unless it may leave its cell by 4 px.
    loose = DigitsMosaic(canvas=20, digits_per_image=(1, 1), train=300, test=1, jitter=4)
    loose_tops = {int(image.any(1).nonzero()[0]) for image in loose.load(CACHE).train.images[:, 0]}
    assert loose_tops & set(range(4, 10))


def test_empty_canvases_and_ten_classes_on_request():
    source = DigitsMosaic(classes=10, canvas=24, digits_per_image=(0, 9), train=200, test=1)
    train = source.load(CACHE).train
    counts = train.labels.sum(1)
    assert set(counts.tolist()) == set(range(10))
    is_black = train.images.flatten(1).amax(1) == 0
    assert torch.equal(is_black, counts == 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"classes": 11}, "classes is 11; expected 2 to 10"),
        ({"canvas": 15}, "canvas is 15; expected 16"),
        ({"train": 0}, "train is 0; expected 1"),
        ({"digits_per_image": (1, 5)}, r"digits_per_image\[1\] is 5; expected 1 to 4"),  # 4 cells
        ({"digits_per_image": (3, 2)}, r"digits_per_image\[1\] is 2; expected 3 to 4"),
        ({"classes": 2, "digits_per_image": (0, 3)}, "is 3; expected 1 to 2"),
        ({"jitter": 5}, "jitter is 5; expected 0 to 4"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        DigitsMosaic(**settings)
