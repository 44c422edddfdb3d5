"""RandAugment: every operation against torchvision or by hand, and how often each is drawn."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torchvision.transforms import functional as reference

from fedquilt.core.errors import UserError
from fedquilt.data.augmentation import randaugment
from fedquilt.data.augmentation.randaugment import KINDS, RandAugment, apply_operations, cut_out
from fedquilt.data.augmentation.views import VIEWS


def photographs(*shape: int) -> Tensor:
    source = torch.Generator().manual_seed(5)
    return torch.randint(20, 200, shape, dtype=torch.uint8, generator=source)


def changed(images: Tensor, name: str, level: int, sign: float = 1.0) -> Tensor:
    """All images after the same operation, in 0..255 without rounding."""
    count = len(images)
    kind = torch.full((count,), float(KINDS.index(name)))
    arguments = torch.full((count,), float(level)), torch.full((count,), sign)
    return apply_operations(images / 255, kind, *arguments) * 255


def test_there_are_fourteen_kinds():
    assert len(set(KINDS)) == len(KINDS) == 14


@pytest.mark.parametrize("level", [1, 5, 9])
def test_colour_operations_agree_with_torchvision(level):
    images = photographs(3, 3, 12, 10)
    kept = 0.05 + 0.09 * level  # weight of the original image in the blend
    expected = {
        "autocontrast": reference.autocontrast(images),
        "brightness": reference.adjust_brightness(images, kept),
        "colour": reference.adjust_saturation(images, kept),
        "contrast": reference.adjust_contrast(images, kept),
        "identity": images,
        "posterise": reference.posterize(images, 4 + 4 * level // 10),
        "sharpness": reference.adjust_sharpness(images, kept),
        "solarise": reference.solarize(images, 256 - 256 * level // 10),
    }
    for name, wanted in expected.items():
        found = changed(images, name, level)
        # torchvision cuts to whole bytes, sometimes twice (the grey, then the mixture).
        assert (found - wanted).abs().max() < 2, name


def test_exact_operations_are_exact():
    images = photographs(4, 3, 9, 9)
    assert torch.equal(changed(images, "identity", 3), images / 255 * 255)
    for name, wanted in (
        ("posterise", reference.posterize(images, 5)),  # 4 + floor(0.3 * 4)
        ("solarise", reference.solarize(images, 180)),  # 256 - floor(0.3 * 256)
    ):
        assert torch.equal(changed(images, name, 3).round(), wanted.to(torch.float32)), name


def test_equalise_agrees_with_torchvision_to_the_byte():
    images = photographs(3, 3, 40, 40)
    images[0, 0] = 77  # a channel of one value stays
    images[1, 1, :, :20] = 30
    wanted = reference.equalize(images).to(torch.float32)
    assert torch.equal(changed(images, "equalise", 1).round(), wanted)
    assert not torch.equal(wanted, images.to(torch.float32))


def test_autocontrast_keeps_a_channel_of_one_value():
    images = torch.full((1, 1, 3, 3), 90, dtype=torch.uint8)
    assert changed(images, "autocontrast", 1).round().unique().tolist() == [90]


def test_colour_leaves_a_grey_image_unchanged():
    images = photographs(2, 1, 5, 5)
    torch.testing.assert_close(changed(images, "colour", 2), images.to(torch.float32))


def point(row: int, column: int, height: int = 21, width: int = 31) -> Tensor:
    images = torch.zeros(1, 1, height, width, dtype=torch.uint8)
    images[0, 0, row, column] = 255
    return images


def place(pixels: Tensor) -> tuple[float, float]:
    """Row and column of the centre of mass."""
    plane = pixels[0, 0]
    rows, columns = torch.arange(plane.shape[0]), torch.arange(plane.shape[1])
    total = plane.sum()
    return ((plane.sum(1) @ rows.float()) / total).item(), (
        (plane.sum(0) @ columns.float()) / total
    ).item()


def test_rotate_turns_about_the_centre_by_three_degrees_a_level():
    # 12 px right of the centre (10, 15), by 5 * 3 = 15 degrees: 12 sin 15 = 3.106 up,
    # 12 cos 15 = 11.591 right.
    row, column = place(changed(point(10, 27), "rotate", 5))
    assert row == pytest.approx(10 - 3.106, abs=0.05)
    assert column == pytest.approx(15 + 11.591, abs=0.05)
    assert place(changed(point(10, 27), "rotate", 5, -1.0))[0] == pytest.approx(13.106, abs=0.05)


def test_shears_start_at_the_top_left_corner():
    # Level 5 shears by 0.15. The point's middle is 10.5 px down: it came from 1.575 px further
    # right, so it moves left; in the same way, 20.5 px right is 3.075 px up.
    row, column = place(changed(point(10, 20), "shear x", 5))
    assert (row, column) == pytest.approx((10, 20 - 1.575), abs=0.02)
    row, column = place(changed(point(10, 20), "shear y", 5, -1.0))
    assert (row, column) == pytest.approx((10 + 3.075, 20), abs=0.02)


def test_shifts_are_whole_pixels_and_shares_of_the_canvas():
    # Level 4 is 0.12: of 31 columns 3.72, cut to 3; of 21 rows 2.52, cut to 2.
    assert place(changed(point(10, 15), "translate x", 4)) == pytest.approx((10, 12), abs=1e-3)
    assert place(changed(point(10, 15), "translate y", 4, -1.0)) == pytest.approx(
        (12, 15), abs=1e-3
    )
    assert changed(point(10, 15), "translate x", 4).max().item() == pytest.approx(255, abs=1e-2)


def test_every_sample_gets_its_own_operation():
    images = photographs(14, 3, 8, 8)
    kinds, level = torch.arange(14.0), torch.arange(14.0) % 9 + 1
    together = apply_operations(images / 255, kinds, level, torch.ones(14))
    for row in range(14):
        only = slice(row, row + 1)
        alone = apply_operations(images[only] / 255, kinds[only], level[only], torch.ones(1))
        torch.testing.assert_close(together[row], alone[0])


def test_cut_out_is_a_grey_square_inside_the_top_left_and_cut_at_the_other_borders():
    centre = torch.tensor([[0.5, 0.5], [0.0, 0.0], [0.99, 0.5]])
    result = cut_out(torch.ones(3, 2, 10, 10), centre, 4)
    covered = (result - 127 / 255).abs() < 1e-6
    # 10 * 0.99 - 2 = 7.9: rows 7, 8, 9 of the four wanted.
    rows = [covered[sample, 0].any(1).nonzero().flatten().tolist() for sample in range(3)]
    assert rows == [[3, 4, 5, 6], [0, 1, 2, 3], [7, 8, 9]]
    assert covered[0, 0].any(0).nonzero().flatten().tolist() == [3, 4, 5, 6]
    assert covered.sum((1, 2, 3)).tolist() == [32, 32, 24]
    assert bool((result[~covered] == 1).all())


def test_the_square_never_covers_more_than_half_a_side():
    # The untouched canvas is white, so what is grey is the square: 4 x 4 of 8 x 8.
    still = RandAugment(operations=0, horizontal_flip=0.0, degrees=0.0, translate=0.0)
    result = still.augment(torch.ones(50, 1, 8, 8), torch.Generator().manual_seed(0))
    covered = ((result - 127 / 255).abs() < 1e-6).sum((1, 2, 3))
    assert covered.max().item() == 16
    assert covered.min().item() >= 4  # cut at the end, at most to half in each direction


def test_kinds_magnitudes_and_signs_are_as_frequent_as_asked(monkeypatch):
    seen = []

    def record(pixels, kind, level, sign):
        seen.append((kind, level, sign))
        return pixels

    monkeypatch.setattr(randaugment, "apply_operations", record)
    VIEWS["randaugment"].augment(torch.zeros(7000, 1, 2, 2), torch.Generator().manual_seed(1))
    assert len(seen) == 2  # n
    for kind, level, sign in seen:
        counts = torch.bincount(kind.to(torch.int64), minlength=14)
        identity = KINDS.index("identity")
        # Half are not applied, and one in fourteen of the rest is the identity: 3500 + 250.
        for number, count in enumerate(counts.tolist()):
            expected = 3750 if number == identity else 250
            assert abs(count - expected) < 4 * math.sqrt(expected), KINDS[number]
        assert level.unique().tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]  # m = 10, from 1 to below
        assert abs((sign > 0).sum().item() - 3500) < 170  # four standard deviations
    assert not torch.equal(seen[0][0], seen[1][0])


def test_every_sample_draws_for_itself():
    images = (photographs(1, 3, 24, 24) / 255).expand(16, 3, 24, 24)
    views = VIEWS["randaugment"].augment(images, torch.Generator().manual_seed(2))
    assert len({view.numpy().tobytes() for view in views}) == 16


@pytest.mark.parametrize("settings", [{"operations": -1}, {"magnitude": 11}, {"share": 1.5}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(UserError, match=r"randaugment needs operations >= 0"):
        RandAugment(**settings)
