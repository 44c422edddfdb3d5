"""Random numbers of views: their generator and device, and samples grouped by them."""

from __future__ import annotations

from typing import cast

import pytest
import torch

from fedquilt.data.augmentation.draws import (
    OFFSET_STEP,
    rows_by_kind,
    to_device,
    uniform,
    uniform_on_host,
)
from fedquilt.data.augmentation.views import VIEWS, make_view

HOST = torch.device("cpu")
IMAGES = torch.empty(50, 1, 2, 2)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


class DeviceGenerator:
    """Stands in for a CUDA generator: a seed and an offset."""

    device = torch.device("cuda")

    def __init__(self, seed: int) -> None:
        self._seed, self._offset = seed, 0

    def initial_seed(self) -> int:
        return self._seed

    def get_offset(self) -> int:
        return self._offset

    def set_offset(self, offset: int) -> None:
        assert offset % 4 == 0  # torch raises for others
        self._offset = offset


def test_a_cpu_generator_is_used_directly() -> None:
    one, two, three = (torch.Generator().manual_seed(3) for _ in range(3))
    expected = torch.rand((5, 2), generator=one)
    assert torch.equal(uniform_on_host(torch.empty(5), 2, two), expected)
    assert torch.equal(uniform(torch.empty(5), 2, three), expected)
    assert torch.equal(two.get_state(), one.get_state())


def test_a_cuda_generator_seeds_host_numbers_with_its_seed_and_offset() -> None:
    def drawn(source: DeviceGenerator) -> torch.Tensor:
        return uniform_on_host(IMAGES, 2, cast(torch.Generator, source))

    source, again, other = DeviceGenerator(7), DeviceGenerator(7), DeviceGenerator(8)
    first, second = drawn(source), drawn(source)
    assert source.get_offset() == 2 * OFFSET_STEP
    assert not torch.equal(first, second)
    assert 0 <= first.min() <= first.max() < 1
    assert torch.equal(drawn(again), first)
    assert torch.equal(drawn(again), second)
    assert not torch.equal(drawn(other), first)


def test_rows_by_kind_has_every_row_once_and_in_order() -> None:
    kind = torch.tensor([2.0, -1.0, 4.0, 2.0, -1.0, 2.0])
    rows = {number: found.tolist() for number, found in rows_by_kind(kind, HOST).items()}
    assert rows == {-1: [1, 4], 2: [0, 3, 5], 4: [2]}
    assert rows_by_kind(torch.zeros(0), HOST) == {}


def test_a_tensor_on_the_host_is_not_copied() -> None:
    numbers = torch.arange(3.0)
    assert to_device(numbers, HOST) is numbers


@needs_gpu
@pytest.mark.parametrize("name", ["strong", "randaugment"])
def test_views_drawn_on_a_gpu_depend_on_seed_and_offset(name: str) -> None:
    images = torch.randint(0, 256, (64, 3, 32, 32), dtype=torch.uint8).cuda()

    def views(seed: int) -> list[torch.Tensor]:
        source = torch.Generator("cuda").manual_seed(seed)
        return [make_view(images, VIEWS[name], (0.5,), (0.5,), source) for _ in range(2)]

    (first, second), (again, more), (other, _) = views(1), views(1), views(2)
    torch.testing.assert_close(first, again)
    torch.testing.assert_close(second, more)
    assert not torch.allclose(first, second)
    assert not torch.allclose(first, other)
