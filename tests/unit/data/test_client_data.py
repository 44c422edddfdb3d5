"""ClientData: a client's own images, and only the labels it annotated."""

from __future__ import annotations

import torch
from torch import tensor

from fedquilt.data.allocation import Holding
from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import MultiLabelDataset


def dataset() -> MultiLabelDataset:
    """Four images filled with their own number."""
    return MultiLabelDataset(
        images=torch.arange(4, dtype=torch.uint8)[:, None, None, None].repeat(1, 1, 2, 2),
        labels=tensor([[1, 0], [1, 1], [0, 1], [1, 1]], dtype=torch.uint8),
        known=torch.ones(4, 2, dtype=torch.bool),
        classes=("one", "two"),
        ids=("a", "b", "c", "d"),
    )


def data() -> ClientData:
    known = tensor([[True, False], [False, True]])
    return ClientData.of(dataset(), Holding("site", tensor([3, 1]), known))


def test_a_label_not_annotated_cannot_be_read():
    assert data().labels.tolist() == [[1, 0], [0, 1]]  # the truth is 1 everywhere


def test_rows_are_the_clients_own():
    assert len(data()) == 2
    assert data().pixels(tensor([0, 1, 0]))[:, 0, 0, 0].tolist() == [3, 1, 3]


def test_pixels_keep_the_layout_of_all_images():
    images = torch.randint(0, 256, (4, 3, 5, 6), dtype=torch.uint8)
    turned = images.contiguous(memory_format=torch.channels_last)
    rows, held = tensor([2, 0, 2]), tensor([3, 1, 0])
    known = torch.ones(3, 1, dtype=torch.bool)
    for stored, layout in ((images, torch.contiguous_format), (turned, torch.channels_last)):
        found = ClientData("site", stored, held, known.to(torch.uint8), known).pixels(rows)
        assert torch.equal(found, images[[0, 3, 0]])
        assert found.is_contiguous(memory_format=layout)


def test_pixels_are_not_copied_whole():
    whole = dataset()
    mine = ClientData.of(whole, Holding("site", tensor([3]), tensor([[True, True]])))
    assert mine.images.data_ptr() == whole.images.data_ptr()


def test_data_on_the_device_already_is_returned_unchanged():
    mine = data()
    assert mine.to(torch.device("cpu")) is mine
    assert mine.has_annotations
    assert not ClientData.of(
        dataset(), Holding("site", tensor([3]), tensor([[False, False]]))
    ).has_annotations


def test_counts_are_of_annotated_labels():
    known = tensor([[True, True], [True, False], [True, True]])
    labels = tensor([[1, 0], [0, 1], [1, 1]], dtype=torch.uint8)  # garbage where not known
    mine = ClientData("site", dataset().images, torch.arange(3), labels, known)
    assert mine.annotated_counts().tolist() == [3, 2]
    assert mine.positives().tolist() == [[True, False], [False, False], [True, True]]
    assert mine.positive_counts().tolist() == [2, 1]
    assert mine.images_of_several_classes() == 1  # the last


def test_what_is_missing_depends_on_how_many_classes_an_image_has():
    def client(known: list[list[bool]]) -> ClientData:
        return ClientData.of(dataset(), Holding("site", tensor([0, 2]), tensor(known)))  # 10, 01

    everything = client([[True, True], [True, True]])
    assert everything.is_complete
    assert everything.is_decided
    positives = client([[True, False], [False, True]])  # with one class each, nothing is missing
    assert not positives.is_complete
    assert positives.is_decided
    half = client([[True, True], [True, False]])  # the second image has no annotated positive
    assert not half.is_decided
    assert half.rows_with_positives.tolist() == [0]


def test_halves_are_drawn_once_for_each_seed():
    positives = tensor([[1], [1], [0], [0], [0], [0]], dtype=torch.uint8)
    known = torch.ones_like(positives, dtype=torch.bool)
    mine = ClientData("site", dataset().images, torch.arange(6), positives, known)
    first, second = mine.halves(3)
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(6))
    assert int((first < 2).sum()) == int((second < 2).sum()) == 1  # a positive each
    assert mine.halves(3)[0] is first
    others = {tuple(mine.halves(seed)[0].tolist()) for seed in range(8)}
    assert len(others) > 1
