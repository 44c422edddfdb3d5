from __future__ import annotations

import torch
from torch import tensor

from fedquilt.models.scenes import initial_centres, nearest_centre, updated_centres


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_running_mean():
    # (3 * (1, 0) + (3, 0) + (5, 0)) / (3 + 2) = (2.2, 0); the other scene has no new image.
    centres, counts = tensor([[1.0, 0.0], [7.0, 7.0]]), tensor([3.0, 0.0])
    features, members = tensor([[3.0, 0.0], [5.0, 0.0]]), tensor([[1.0, 0.0], [1.0, 0.0]])
    new = updated_centres(centres, counts, features, members)
    torch.testing.assert_close(new, tensor([[2.2, 0.0], [7.0, 7.0]]))


def test_the_first_images_replace_the_initial_centre():
    new = updated_centres(tensor([[9.0]]), tensor([0.0]), tensor([[1.0], [3.0]]), torch.ones(2, 1))
    assert new.tolist() == [[2.0]]


def test_nearest_centre_by_distance():
    centres = tensor([[0.0, 0.0], [10.0, 0.0]])
    assert nearest_centre(tensor([[4.0, 3.0]]), centres).tolist() == [0]
    assert nearest_centre(tensor([[6.0, 3.0], [-1.0, 0.0]]), centres).tolist() == [1, 0]


def test_initial_centres_are_images_far_from_each_other():
    """Three tight clouds far apart: two centres in one cloud have a probability of about 1e-8."""
    clouds = tensor([[0.0, 0.0], [1000.0, 0.0], [0.0, 1000.0]]).repeat_interleave(20, 0)
    points = clouds + 0.01 * torch.rand(60, 2, generator=seeded())
    for seed in range(5):
        centres = initial_centres(points, 3, seeded(seed))
        assert all(any(torch.equal(centre, point) for point in points) for centre in centres)
        assert sorted(nearest_centre(clouds[::20], centres).tolist()) == [0, 1, 2]
    assert torch.equal(initial_centres(points, 3, seeded(1)), initial_centres(points, 3, seeded(1)))


def test_more_scenes_than_distinct_images():
    centres = initial_centres(tensor([[1.0], [1.0], [2.0]]), 5, seeded())
    assert centres.shape == (5, 1)
    assert set(centres.flatten().tolist()) == {1.0, 2.0}
