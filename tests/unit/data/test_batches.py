"""One client's batches: every image once per epoch, in an order drawn from the generator."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.data.batches import (
    Batch,
    Pool,
    ordered_batches,
    pool_steps,
    row_batches,
    steps_per_epoch,
    train_batches,
)
from fedquilt.data.client_data import ClientData

CPU = torch.device("cpu")


def client(size: int) -> ClientData:
    """Image i is filled with the number i, and so is its label; its index is 2 i + 1."""
    images = torch.arange(2 * size + 2, dtype=torch.uint8)[:, None, None, None] // 2
    return ClientData(
        name="site",
        images=images.repeat(1, 1, 2, 2),
        indices=2 * torch.arange(size) + 1,
        labels=torch.arange(size, dtype=torch.uint8)[:, None].repeat(1, 2),
        known=torch.arange(2 * size).reshape(size, 2) % 3 == 0,
    )


def batches_of(
    data: ClientData,
    *,
    batch_size: int,
    step_count: int,
    seed: int = 0,
    views: tuple[str, ...] = ("plain",),
    rows: Tensor | None = None,
    whole: bool = False,
) -> list[Batch]:
    return list(
        train_batches(
            data,
            Pool(batch_size, views, rows, whole),
            Preprocessing(views=Views(weak="flip"), mean=(0.0,), std=(1.0,)),
            step_count=step_count,
            order=torch.Generator().manual_seed(seed),
            augmentation=torch.Generator().manual_seed(seed + 1),
            device=CPU,
        )
    )


def rows_of(batches: list[Batch]) -> list[list[int]]:
    return [batch.rows.tolist() for batch in batches]


@pytest.mark.parametrize(
    ("size", "batch_size", "steps"),
    [
        (32, 8, 4),  # no tail batch
        (30, 8, 4),  # a tail of 6 is a batch
        (33, 8, 4),  # a tail of 1 is dropped
        (34, 8, 5),  # a tail of 2 is a batch
        (5, 8, 1),
        (1, 8, 1),  # a single image is a batch
        (3, 1, 3),
    ],
)
def test_steps_in_an_epoch(size, batch_size, steps):
    assert steps_per_epoch(size, batch_size) == steps
    batches = batches_of(client(size), batch_size=batch_size, step_count=steps)
    rows = [row for batch in rows_of(batches) for row in batch]
    left_over = 1 if size % batch_size == 1 and size > 1 and batch_size > 1 else 0
    assert len(set(rows)) == len(rows) == size - left_over
    assert set(rows) <= set(range(size))


def test_a_pool_gives_its_own_rows_and_no_others():
    pool = torch.tensor([3, 7, 11, 12, 19])
    rows = rows_of(batches_of(client(20), batch_size=2, step_count=6, rows=pool))
    assert [len(each) for each in rows] == [2, 2, 2, 2, 2, 2]  # a tail of 1 is dropped
    assert {row for each in rows for row in each} <= set(pool.tolist())


def test_whole_batches_are_all_equally_long():
    sizes = [len(rows) for rows in rows_of(batches_of(client(7), batch_size=4, step_count=4))]
    assert sizes == [4, 3, 4, 3]
    whole = batches_of(client(7), batch_size=4, step_count=4, whole=True)
    assert [len(rows) for rows in rows_of(whole)] == [4, 4, 4, 4]
    assert [
        len(rows) for rows in rows_of(batches_of(client(3), batch_size=4, step_count=2, whole=True))
    ] == [3, 3]


@pytest.mark.parametrize(("size", "steps"), [(32, 4), (33, 5), (1, 1)])
def test_a_pool_without_shuffling_gives_all_images_in_order(size, steps):
    pool = Pool(8, ("plain",), shuffles=False)
    assert pool_steps(pool, size) == steps
    rows = torch.cat([*row_batches(pool, size, steps, torch.Generator(), torch.device("cpu"))])
    assert rows.tolist() == [*range(size)]


def test_each_shuffle_drops_another_image():
    size, per_epoch, epochs = 9, 1, 30
    batches = batches_of(client(size), batch_size=8, step_count=per_epoch * epochs)
    left_over = {(set(range(size)) - set(rows)).pop() for rows in rows_of(batches)}
    assert len(left_over) > 4


def test_every_epoch_is_reshuffled():
    rows = rows_of(batches_of(client(20), batch_size=20, step_count=3))
    assert [sorted(each) for each in rows] == [list(range(20))] * 3
    assert rows[0] != rows[1] != rows[2]


@pytest.mark.parametrize("step_count", [1, 2, 3, 4, 7])
def test_step_count(step_count):
    batches = batches_of(client(20), batch_size=8, step_count=step_count)
    sizes = [len(rows) for rows in rows_of(batches)]
    assert sizes == [8, 8, 4, 8, 8, 4, 8][:step_count]


def test_views_do_not_change_the_order():
    """Methods with different views see the same images at the same step."""
    data = client(20)
    plain = batches_of(data, batch_size=8, step_count=9)
    augmented = batches_of(data, batch_size=8, step_count=9, views=("weak", "weak"))
    assert rows_of(plain) == rows_of(augmented)


def test_the_order_depends_only_on_the_generator():
    settings = {"batch_size": 8, "step_count": 3}
    first = rows_of(batches_of(client(20), **settings))
    other_pixels = client(20)
    other_pixels.images.zero_()
    other_pixels.labels.zero_()
    assert rows_of(batches_of(other_pixels, **settings)) == first
    assert rows_of(batches_of(client(20), views=("weak", "plain"), **settings)) == first
    assert rows_of(batches_of(client(20), seed=1, **settings)) != first


def test_batches_do_not_touch_torchs_own_generator():
    before = torch.get_rng_state()
    batches_of(client(20), batch_size=8, step_count=3, views=("weak", "strong"))
    assert torch.equal(before, torch.get_rng_state())


def test_pixels_labels_and_known_belong_together():
    data = client(20)
    for batch in batches_of(data, batch_size=8, step_count=5):
        (view,) = batch.views
        numbers = (view[:, 0, 0, 0] * 255).round()
        assert torch.equal(numbers, batch.rows.to(torch.float32))
        assert torch.equal(batch.labels[:, 0], batch.rows.to(torch.float32))
        assert torch.equal(batch.known, data.known[batch.rows])


def test_a_batch_has_every_requested_view():
    def shapes(views: tuple[Tensor, ...]) -> list[tuple[int, ...]]:
        return [tuple(view.shape) for view in views]

    (batch,) = batches_of(client(4), batch_size=4, step_count=1, views=("weak", "weak", "plain"))
    assert shapes(batch.views) == [(4, 1, 2, 2)] * 3
    assert all(view.dtype == torch.float32 for view in batch.views)
    assert batch.labels.dtype == torch.float32
    assert batch.known.dtype == torch.bool


def test_ordered_batches_hold_every_image_once_in_the_clients_order():
    data = client(5)
    preprocessing = Preprocessing(views=Views(), mean=(0.0,), std=(1.0,))
    batches = list(ordered_batches(data, preprocessing, torch.Generator(), CPU, "plain", 2))
    assert rows_of(batches) == [[0, 1], [2, 3], [4]]  # a tail of 1 is kept, as nothing is trained
    for batch in batches:
        assert torch.equal(batch.labels, data.labels[batch.rows].float())
        assert torch.equal(batch.known, data.known[batch.rows])
        pixels = batch.views[0][:, 0, 0, 0] * 255
        torch.testing.assert_close(pixels, batch.rows.float())
