"""The validation part: whole patients, drawn at every client, few positives stay for training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation, Holding, allocate
from fedquilt.data.annotations.rules import Recorded
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.partitions.iid import Iid
from fedquilt.data.partitions.natural import Natural
from fedquilt.data.validation import KEPT_POSITIVES, Validation, set_aside

SHARE = Validation(share=0.2)


def hospitals(patients: int = 60, images: int = 2, hidden: int = 0) -> MultiLabelDataset:
    """Two sites; "common" is positive in a third of the patients, "rare" in 4 at north only.

    North has not annotated "common" at all; ``hidden`` stands in these labels.
    """
    site_of = np.repeat(["north", "south"], patients)
    patient = np.repeat(np.arange(2 * patients), images)
    count = len(patient)
    labels = torch.zeros(count, 2, dtype=torch.uint8)
    labels[:, 0] = torch.from_numpy(patient % 3 == 0)
    labels[:, 1] = torch.from_numpy(patient % 15 == 1)
    known = torch.ones(count, 2, dtype=torch.bool)
    is_north = torch.from_numpy(site_of[patient] == "north")
    known[is_north, 0] = False
    labels[is_north, 0] = hidden
    return MultiLabelDataset(
        images=torch.zeros(count, 1, 1, 1, dtype=torch.uint8),
        labels=labels,
        known=known,
        classes=("common", "rare"),
        ids=tuple(f"{row:04d}.png" for row in range(count)),
        groups=tuple(f"p{each:03d}" for each in patient),
        sites=tuple(site_of[patient].tolist()),
    )


def allocated(data: MultiLabelDataset) -> Allocation:
    return allocate(data, Natural(), Recorded(), seed=0)


def chosen_ids(allocation: Allocation, data: MultiLabelDataset) -> dict[str, set[str]]:
    return {
        each.name: {data.ids[row] for row in each.for_validation().indices.tolist()}
        for each in allocation.holdings
    }


def patients_of(holding: Holding, data: MultiLabelDataset) -> set[str]:
    assert data.groups is not None
    return {data.groups[row] for row in holding.indices.tolist()}


def test_off_by_default_leaves_the_allocation_as_it_is():
    data = hospitals()
    allocation = allocated(data)
    assert set_aside(allocation, data, None, Validation()) is allocation


def test_whole_patients_in_the_share_at_every_site():
    data = hospitals()
    found = set_aside(allocated(data), data, None, SHARE)
    for holding in found.holdings:
        train, validation = holding.for_training(), holding.for_validation()
        assert len(train.indices) + len(validation.indices) == 120
        assert len(validation.indices) == pytest.approx(0.2 * 120, abs=2)
        patients = [
            {data.groups[row] for row in each.indices.tolist()} for each in (train, validation)
        ]
        assert not patients[0] & patients[1]
        assert torch.equal(validation.known, data.known[validation.indices])
    south = found.holdings[1].for_validation()
    # 20 of South's 60 patients are positive for "common": 4 of them, with two images each.
    assert int(data.labels[south.indices, 0].sum()) == 8


def test_few_positives_stay_for_training():
    """4 patients a site are positive for "rare", fewer than 10; 20 for "common" at South."""
    data = hospitals()
    assert KEPT_POSITIVES == 10
    for holding in set_aside(allocated(data), data, None, SHARE).holdings:
        assert int(data.labels[holding.for_validation().indices, 1].sum()) == 0
        assert int(data.labels[holding.for_training().indices, 1].sum()) == 8
    # With 10 positive patients at a site, 2 of them (a share of 0.2) validate.
    more = hospitals(patients=150)
    north = set_aside(allocated(more), more, None, SHARE).holdings[0].for_validation()
    assert int(more.labels[north.indices, 1].sum()) == 4


def test_draw_depends_on_names_labels_and_seed_only():
    data = hospitals()
    first = chosen_ids(set_aside(allocated(data), data, None, SHARE), data)
    order = np.random.default_rng(5).permutation(len(data)).tolist()
    shuffled = data.select(order)
    assert chosen_ids(set_aside(allocated(shuffled), shuffled, None, SHARE), shuffled) == first
    hidden = hospitals(hidden=1)
    assert chosen_ids(set_aside(allocated(hidden), hidden, None, SHARE), hidden) == first
    other = set_aside(allocated(data), data, None, replace(SHARE, seed=1))
    assert chosen_ids(other, data) != first


def test_a_site_draws_the_same_alone_as_beside_others():
    data = hospitals()
    together = chosen_ids(set_aside(allocated(data), data, None, SHARE), data)
    for name in ("north", "south"):
        rows = [row for row, site in enumerate(data.sites or ()) if site == name]
        alone = data.select(rows)
        everything = Holding(name, torch.arange(len(alone)), alone.known)
        found = set_aside(Allocation((everything,), alone.classes), alone, None, SHARE)
        assert chosen_ids(found, alone) == {name: together[name]}


def test_a_patient_at_two_clients_is_on_one_side_at_both():
    data = hospitals()
    allocation = allocate(data, Iid(clients=3), Recorded(), seed=0)
    found = set_aside(allocation, data, None, SHARE)
    trains: set[str] = set()
    validates: set[str] = set()
    for holding in found.holdings:
        trains |= patients_of(holding.for_training(), data)
        validates |= patients_of(holding.for_validation(), data)
        assert len(holding.for_validation().indices) == pytest.approx(0.2 * 80, abs=4)
    assert not trains & validates


def test_marked_images_are_set_aside_and_nothing_is_drawn():
    data = hospitals()
    marked = torch.zeros(len(data), dtype=torch.bool)
    marked[[0, 1, 130, 131]] = True
    for settings in (SHARE, Validation()):
        found = set_aside(allocated(data), data, marked, settings)
        assert chosen_ids(found, data) == {
            "north": {"0000.png", "0001.png"},
            "south": {"0130.png", "0131.png"},
        }
        assert found.protocol["validation"] == {"from": "the data"}


def test_a_client_without_training_images_is_refused():
    data = hospitals()
    marked = torch.tensor([site == "south" for site in data.sites or ()])
    with pytest.raises(UserError, match="all 120 images of 'south' are marked for validation"):
        set_aside(allocated(data), data, marked, SHARE)


def test_nothing_is_set_aside_where_training_needs_every_patient():
    data = hospitals(patients=6)
    known = torch.ones_like(data.known)
    labels = torch.ones_like(data.labels)  # every patient is a positive of a class with 6 of them
    small = replace(data, known=known, labels=labels)
    allocation = allocated(small)
    assert set_aside(allocation, small, None, SHARE) is allocation


def test_the_file_keeps_the_part_and_its_hash_depends_on_it(tmp_path: Path):
    data = hospitals()
    plain = allocated(data)
    found = set_aside(plain, data, None, SHARE)
    found.save(tmp_path / "partition.npz")
    loaded = Allocation.load(tmp_path / "partition.npz")
    assert loaded.hash == found.hash != plain.hash
    for one, two in zip(loaded.holdings, found.holdings):
        assert one.validation is not None
        assert two.validation is not None
        assert torch.equal(one.validation, two.validation)
    moved = list(found.holdings)
    moved[0] = replace(moved[0], validation=~_validation(moved[0]))
    assert Allocation(tuple(moved), found.classes, found.protocol).hash != found.hash


def _validation(holding: Holding) -> Tensor:
    assert holding.validation is not None
    return holding.validation


@pytest.mark.parametrize(
    ("setting", "value"),
    [("share", 1.0), ("share", -0.1), ("patience", 0), ("min_gain", -1.0)],
)
def test_wrong_settings_are_refused(setting: str, value: float):
    with pytest.raises(UserError, match=f"validation.{setting} must be .* found {value}"):
        Validation(**{setting: value})
