from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import median_filter
from support.photographs import generator, photographs
from torch.nn import functional as F

from fedquilt.core.errors import UserError
from fedquilt.data.augmentation.degradation import degrade, gaussian_blur, median_blur
from fedquilt.data.augmentation.views import VIEWS, Augmentation, find_view, make_view, normalise

NOTHING = {"horizontal_flip": 0.0, "degrees": 0.0, "translate": 0.0}


def raw(images: torch.Tensor, view: Augmentation, seed: int = 0) -> torch.Tensor:
    """A view in pixels 0..1."""
    return make_view(images, view, (0.0,), (1.0,), generator(seed))


def test_normalise_by_hand():
    images = torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 3, 1, 1)
    # (0 - 0.5) / 0.25, (1 - 0.5) / 0.25, (0.2 - 0.1) / 0.5
    result = normalise(images, (0.5, 0.5, 0.1), (0.25, 0.25, 0.5))
    assert torch.allclose(result.flatten(), torch.tensor([-2.0, 2.0, 0.2]), atol=1e-6)
    assert torch.allclose(normalise(images, (0.5,), (0.25,)).flatten()[:2], result.flatten()[:2])


@pytest.mark.parametrize(
    "view",
    [
        VIEWS["plain"],
        Augmentation(**NOTHING, brightness=0.3, brightness_share=0.0),
        Augmentation(horizontal_flip=0.0, affine_share=0.0),
    ],
)
def test_a_view_without_augmentation_equals_normalisation_bitwise(view, monkeypatch):
    monkeypatch.setattr(F, "grid_sample", None)
    images = photographs(4, 3, 9, 7)
    source = generator()
    before = source.get_state()
    result = make_view(images, view, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4), source)
    assert torch.equal(result, normalise(images, (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)))
    assert torch.equal(source.get_state(), before)  # and draws no numbers


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_views_repeat_by_seed_keep_shape_and_leave_the_images_alone(name):
    images = photographs(6, 3, 12, 10)
    before = images.clone()
    first, again, other = (raw(images, VIEWS[name], seed) for seed in (1, 1, 2))
    assert first.shape == images.shape
    assert first.dtype == torch.float32
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (name == "plain")
    assert torch.equal(images, before)
    assert first.min() >= 0
    assert first.max() <= 1 + 1e-6


@pytest.mark.parametrize("name", sorted(VIEWS))
def test_float_images_in_unit_range_give_the_view_of_the_same_bytes(name):
    images = photographs(5, 1, 16, 16)
    pixels = images / 255
    before = pixels.clone()
    assert torch.equal(raw(pixels, VIEWS[name]), raw(images, VIEWS[name]))
    assert torch.equal(pixels, before)


def test_every_sample_is_augmented_independently():
    images = photographs(1, 1, 16, 16).expand(8, 1, 16, 16)
    for name in ("weak", "strong"):
        views = raw(images, VIEWS[name])
        assert len({view.numpy().tobytes() for view in views}) == 8


def test_corners_from_outside_are_black_before_normalisation():
    white = torch.full((16, 1, 20, 20), 255, dtype=torch.uint8)
    result = make_view(white, Augmentation(degrees=45.0), (0.5,), (0.25,), generator())
    assert result.min().item() == -2.0  # black: (0 - 0.5) / 0.25
    assert result[:, :, 10, 10].min() > 1.99  # white: (1 - 0.5) / 0.25


def test_flips_are_exact_and_as_frequent_as_asked():
    images = photographs(400, 1, 4, 6)
    flipped = raw(images, Augmentation(degrees=0.0, translate=0.0, vertical_flip=0.25))
    pixels = images / 255
    counts = {}
    for name, axes in {"none": (), "across": (3,), "down": (2,), "both": (2, 3)}.items():
        counts[name] = (flipped == pixels.flip(axes)).flatten(1).all(1).sum().item()
    assert sum(counts.values()) == 400
    # Binomial with n = 400: three standard deviations of share p are 1200 * sqrt(p * (1-p) / 400).
    assert abs(counts["across"] + counts["both"] - 200) < 30
    assert abs(counts["down"] + counts["both"] - 100) < 26


def test_rotations_shifts_and_scales_stay_within_their_ranges(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        "fedquilt.data.augmentation.views.warp",
        lambda pixels, degrees, shift, scale, mirrored: (
            seen.update(degrees=degrees, shift=shift, scale=scale) or pixels
        ),
    )
    view = Augmentation(degrees=15.0, translate=0.1, scale=(0.9, 1.1), affine_share=0.85)
    raw(photographs(4000, 1, 1, 1), view)
    moved = seen["scale"] != 1
    # 4000 draws with share 0.85: three standard deviations are 68.
    assert abs(moved.sum().item() - 3400) < 68
    for name, low, high in (("degrees", -15, 15), ("shift", -0.1, 0.1), ("scale", 0.9, 1.1)):
        values = seen[name][moved]
        assert low <= values.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < values.max() <= high
    assert not seen["degrees"][~moved].any()
    assert not seen["shift"][~moved].any()


def test_brightness_moves_whole_images_within_the_limit():
    grey = torch.full((2000, 1, 2, 2), 0.5)
    added = raw(grey, Augmentation(**NOTHING, brightness=0.2, brightness_share=0.75)) - 0.5
    assert torch.equal(added.amax((2, 3)), added.amin((2, 3)))
    assert added.abs().max() <= 0.2 + 1e-6
    assert added.max() > 0.19
    assert added.min() < -0.19
    # 2000 draws with share 0.75: three standard deviations are 58.
    assert abs((added[:, 0, 0, 0] != 0).sum().item() - 1500) < 58
    white = raw(torch.ones(50, 1, 2, 2), Augmentation(**NOTHING, brightness=0.2))
    assert white.max() == 1


@pytest.mark.parametrize("size", [3, 5])
def test_median_blur_agrees_with_scipy(size):
    images = photographs(2, 2, 9, 8)
    expected = median_filter(images.numpy(), size=(1, 1, size, size), mode="nearest")
    assert torch.equal((median_blur(images / 255, size) * 255).round(), torch.tensor(expected))


def test_gaussian_blur_of_a_point_is_the_window():
    # Size 3 has sigma 0.8: weights exp(-1 / 1.28) = 0.45783, 1, 0.45783 over their sum 1.91567.
    pixels = torch.zeros(1, 1, 5, 5)
    pixels[0, 0, 2, 2] = 1
    side, centre = 0.45783 / 1.91567, 1 / 1.91567
    expected = np.outer([side, centre, side], [side, centre, side])
    result = gaussian_blur(pixels, 3)[0, 0]
    assert result[1:4, 1:4].numpy() == pytest.approx(expected, abs=1e-5)
    assert result.sum().item() == pytest.approx(1)
    assert gaussian_blur(torch.ones(1, 1, 4, 4), 5).allclose(torch.ones(1, 1, 4, 4))


def test_degrade_gives_each_sample_its_own_kind():
    pixels = photographs(6, 1, 7, 7) / 255
    noise = torch.full_like(pixels, 0.7)
    result = degrade(pixels, torch.tensor([0, 1, 2, 3, 4, -1]), noise)
    for row, expected in enumerate(
        (
            median_blur(pixels, 3),
            median_blur(pixels, 5),
            gaussian_blur(pixels, 3),
            gaussian_blur(pixels, 5),
            (pixels + 0.7).clamp(max=1),
            pixels,
        )
    ):
        assert torch.equal(result[row], expected[row])


def test_kinds_of_degradation_are_as_frequent_as_asked(monkeypatch):
    seen = {}
    monkeypatch.setattr(
        "fedquilt.data.augmentation.views.degrade",
        lambda pixels, kind, noise: seen.update(kind=kind, noise=noise) or pixels,
    )
    view = Augmentation(**NOTHING, degrade_share=0.7)
    raw(torch.full((6000, 1, 8, 8), 0.5), view)
    counts = [(seen["kind"] == kind).sum().item() for kind in range(-1, 5)]
    # Of 6000: 0.3 stay; 0.7 / 3 each for median, Gaussian and noise; blurs half in each size.
    for found, expected in zip(counts, (1800, 700, 700, 700, 700, 1400)):
        assert abs(found - expected) < 4 * math.sqrt(expected)
    # Variance of 5 to 30 in bytes: deviations of 2.2 to 5.5; pooled, sqrt(17.5) = 4.18.
    deviations = seen["noise"].flatten(1).std(1) * 255
    assert seen["noise"].std().item() * 255 == pytest.approx(4.18, rel=0.02)
    assert deviations.min() > 1.5
    assert deviations.max() < 7.5


def test_cached_constants_work_outside_inference_mode():
    with torch.inference_mode():
        normalise(photographs(1, 1, 2, 2), (0.123,), (0.456,))
    pixels = torch.rand(1, 1, 2, 2, requires_grad=True)
    normalise(pixels, (0.123,), (0.456,)).sum().backward()
    assert torch.allclose(pixels.grad, torch.full((1, 1, 2, 2), 1 / 0.456))


def test_unknown_views_and_impossible_settings_are_refused():
    with pytest.raises(UserError, match=r"unknown view 'week'; did you mean 'weak'\?"):
        find_view("week")
    assert find_view("strong") is VIEWS["strong"]
    with pytest.raises(UserError, match=r"augmentation.translate must be in 0..1, found 2"):
        Augmentation(translate=2)
    with pytest.raises(UserError, match=r"augmentation.scale must be two positive numbers"):
        Augmentation(scale=(1.1, 0.9))


@pytest.mark.parametrize("name", VIEWS)
def test_views_do_not_depend_on_memory_format_or_dtype(name):
    images = torch.randint(0, 256, (20, 3, 8, 9), dtype=torch.uint8)
    turned = images.contiguous(memory_format=torch.channels_last)

    def view(pixels):
        source = torch.Generator().manual_seed(4)
        return make_view(pixels, VIEWS[name], (0.3, 0.4, 0.5), (0.2, 0.3, 0.4), source)

    expected = view(images)
    assert torch.equal(view(turned), expected)
    assert torch.equal(view(images / 255), expected)
    if VIEWS[name].preserves_values:
        assert view(turned).is_contiguous(memory_format=torch.channels_last)


def test_views_that_preserve_values():
    assert {name for name, view in VIEWS.items() if view.preserves_values} == {"plain", "flip"}
    turns, never = Augmentation(translate=0.0), Augmentation(affine_share=0.0)
    assert not turns.preserves_values
    assert never.preserves_values
    assert not Augmentation(affine_share=0.0, brightness=0.1).preserves_values
    assert not Augmentation(affine_share=0.0, degrade_share=0.1).preserves_values


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", sorted(VIEWS))
def test_a_cpu_generator_gives_the_same_view_on_the_gpu(name):
    images = photographs(8, 3, 32, 32)
    here, there = raw(images, VIEWS[name]), raw(images.cuda(), VIEWS[name])
    assert torch.allclose(here, there.cpu(), atol=1e-4)
