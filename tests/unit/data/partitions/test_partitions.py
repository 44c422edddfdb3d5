"""Properties of every partition."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.label_table import random_table, table

from fedquilt.core.errors import UserError
from fedquilt.core.registry import find
from fedquilt.data.partitions import PARTITIONS
from fedquilt.data.partitions.dirichlet import Dirichlet, LabelCountDirichlet
from fedquilt.data.partitions.dirichlet_presence import DirichletPresence
from fedquilt.data.partitions.feature_skew import FeatureSkew
from fedquilt.data.partitions.iid import Iid
from fedquilt.data.partitions.k_modes import KModes
from fedquilt.data.partitions.natural import Natural
from fedquilt.data.partitions.partition import Partition
from fedquilt.data.partitions.positive_only import PositiveOnly
from fedquilt.data.partitions.quantity_skew import QuantitySkew

EVERY: dict[str, Partition] = {
    "iid": Iid(clients=7),
    "iid spread": Iid(clients=7, remainder="spread"),
    "label-count-dirichlet": LabelCountDirichlet(clients=5, concentration=0.5),
    "dirichlet": Dirichlet(clients=5, concentration=0.5),
    "dirichlet-presence": DirichletPresence(clients=5, concentration=0.5, presence_share=0.5),
    "dirichlet-presence mask": DirichletPresence(
        clients=5, concentration=0.5, presence_share=0.5, uncovered="mask"
    ),
    "dirichlet-presence relax": DirichletPresence(
        clients=5, concentration=0.5, presence_share=0.5, uncovered="relax"
    ),
    "natural site": Natural(),
    "natural patient": Natural(by="patient", smallest_client=7),
    "positive-only": PositiveOnly(replicas=2),
    "quantity-skew": QuantitySkew(clients=5, concentration=0.5),
    "feature-skew": FeatureSkew(clients=5, concentration=0.5, by="site"),
    "k-modes": KModes(clients=5),
    "k-modes capped": KModes(clients=5, largest_client=130),
}
every = pytest.mark.parametrize("partition", EVERY.values(), ids=EVERY.keys())


def test_the_table_names_each_partition_once() -> None:
    found = {find("partition", PARTITIONS, name) for name in PARTITIONS}
    assert found == {type(partition) for partition in EVERY.values()}


@every
def test_images_are_disjoint_and_all_but_the_dropped_are_held(partition: Partition) -> None:
    data = random_table()
    assignment = partition.assign(data, seed=3)
    held = torch.cat(assignment.indices)
    assert len(held.unique()) == len(held) == 600 - assignment.notes["dropped_images"]
    assert held.min() >= 0
    assert held.max() < 600
    assert len(set(assignment.names)) == len(assignment.names) == len(assignment.indices)
    for rows in assignment.indices:
        assert rows.dtype == torch.int64
        assert rows.tolist() == sorted(rows.tolist())
    for rows, known in zip(assignment.indices, assignment.known or ()):
        assert known.shape == (len(rows), 6)


@every
def test_depends_on_the_seed_alone(partition: Partition) -> None:
    data = random_table()
    first = partition.assign(data, seed=3)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    partition.assign(data, seed=4)
    again = partition.assign(data, seed=3)
    assert states == (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    )
    assert [rows.tolist() for rows in again.indices] == [rows.tolist() for rows in first.indices]
    assert again.notes == first.notes


@pytest.mark.parametrize(
    "name", sorted(EVERY.keys() - {"natural site", "natural patient", "k-modes"})
)  # those three draw nothing
def test_another_seed_gives_another_draw(name: str) -> None:
    partition = EVERY[name]
    first, second = (partition.assign(random_table(), seed=seed) for seed in (3, 4))
    assert [rows.tolist() for rows in first.indices] != [rows.tolist() for rows in second.indices]


@every
def test_unannotated_labels_are_never_read(partition: Partition) -> None:
    data = random_table()
    garbage = torch.randint(0, 256, data.labels.shape, generator=torch.Generator().manual_seed(9))
    altered = replace(data, labels=torch.where(data.known, data.labels, garbage.to(torch.uint8)))
    first, second = partition.assign(data, seed=3), partition.assign(altered, seed=3)
    assert [rows.tolist() for rows in first.indices] == [rows.tolist() for rows in second.indices]
    assert first.notes == second.notes


@pytest.mark.parametrize(
    "name", sorted(EVERY.keys() - {"natural site", "natural patient", "positive-only"})
)  # the clients of those three come from the data
def test_more_clients_than_images_is_refused(name: str) -> None:
    partition = EVERY[name]
    data = replace(table([[1, 0], [0, 1], [1, 1]]), sites=("a", "b", "a"))
    with pytest.raises(UserError, match=r"3 images cannot be split over \d clients"):
        partition.assign(data, seed=0)
