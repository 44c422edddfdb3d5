"""Even, Dirichlet, natural and positive-only partitions: the rules of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.label_table import random_table, table

from fedquilt.core.errors import UserError
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.partitions.dirichlet import Dirichlet, LabelCountDirichlet
from fedquilt.data.partitions.feature_skew import FeatureSkew
from fedquilt.data.partitions.iid import Iid
from fedquilt.data.partitions.natural import Natural
from fedquilt.data.partitions.partition import DROPPED
from fedquilt.data.partitions.positive_only import PositiveOnly
from fedquilt.data.partitions.quantity_skew import QuantitySkew
from fedquilt.data.partitions.strata import draw_clients, rarest_positive, restrict_shares


def test_iid_gives_equal_shares_and_drops_or_spreads_the_rest() -> None:
    data = table(torch.zeros(23, 1))
    equal = Iid(clients=5).assign(data, seed=0)
    assert [len(rows) for rows in equal.indices] == [4] * 5
    assert equal.notes == {"dropped_images": 3}
    spread = Iid(clients=5, remainder="spread").assign(data, seed=0)
    assert [len(rows) for rows in spread.indices] == [5, 5, 5, 4, 4]
    assert spread.notes == {"dropped_images": 0}
    assert equal.names == ("client-0", "client-1", "client-2", "client-3", "client-4")
    assert Iid(clients=11).assign(data, seed=0).names[:2] == ("client-00", "client-01")


def test_label_count_groups_are_each_spread_by_dirichlet_shares() -> None:
    # 40 images without, 40 with one and 40 with two positives; four clients.
    data = table([[0, 0, 0]] * 40 + [[1, 0, 0]] * 20 + [[0, 0, 1]] * 20 + [[1, 1, 0]] * 40)
    even = LabelCountDirichlet(clients=4, concentration=1e9).assign(data, seed=0)
    for rows in even.indices:
        assert Counter((data.labels[rows].sum(1)).tolist()) == {0: 10, 1: 10, 2: 10}
    skewed = LabelCountDirichlet(clients=4, concentration=0.1).assign(data, seed=0)
    counts = [Counter((data.labels[rows].sum(1)).tolist()) for rows in skewed.indices]
    # Under concentration 0.1 the largest of four shares is on average above 0.8.
    assert np.mean([max(each[number] for each in counts) for number in range(3)]) > 20


def test_small_clients_are_drawn_again_or_reported() -> None:
    data = random_table()
    partition = LabelCountDirichlet(clients=5, concentration=0.3, smallest_client=40)
    drawn = [partition.assign(data, seed) for seed in range(5)]
    assert min(len(rows) for each in drawn for rows in each.indices) >= 40
    assert max(each.notes["draws"] for each in drawn) > 1
    with pytest.raises(UserError, match="none of 3 draws gave every client 121 images"):
        LabelCountDirichlet(clients=5, concentration=0.3, smallest_client=121, attempts=3).assign(
            data, 1
        )
    with pytest.raises(UserError, match="concentration must be positive, found 0"):
        LabelCountDirichlet(clients=5, concentration=0).assign(data, 1)


def test_rarest_positive_of_each_image() -> None:
    patterns = np.array([[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=bool)
    # Frequencies 5, 2, 2: of classes 1 and 2 the first counts as rarer; no positive is class 3.
    assert rarest_positive(patterns, np.array([5, 2, 2])).tolist() == [1, 2, 0, 3]


def test_dirichlet_stops_filling_a_client_at_its_mean_size() -> None:
    data = random_table()
    for seed in range(5):
        drawn = Dirichlet(clients=5, concentration=0.1, smallest_client=1).assign(data, seed)
        positives = ((data.labels == 1) & data.known).numpy()
        strata = rarest_positive(positives, positives.sum(axis=0))
        sizes = np.zeros(5, dtype=int)
        for stratum in range(7):
            got = np.array([(strata[rows.numpy()] == stratum).sum() for rows in drawn.indices])
            assert not got[sizes >= 600 / 5].any()
            sizes += got
        assert sizes.sum() == 600


def test_dirichlet_is_even_for_a_large_concentration() -> None:
    data = table([[1, 0]] * 100 + [[0, 1]] * 60)
    even = Dirichlet(clients=5, concentration=1e9).assign(data, seed=0)
    for rows in even.indices:
        assert data.labels[rows].sum(0).tolist() == [20, 12]


def test_natural_clients_are_the_sites_or_patients(caplog: pytest.LogCaptureFixture) -> None:
    data = replace(
        table(torch.zeros(6, 1)),
        sites=("north", "south", "north", "east", "south", "north"),
        groups=("p1", "p2", "p1", "p3", "p4", "p5"),
    )
    by_site = Natural().assign(data, seed=0)
    assert by_site.names == ("east", "north", "south")
    assert [rows.tolist() for rows in by_site.indices] == [[3], [0, 2, 5], [1, 4]]
    by_patient = Natural(by="patient").assign(data, seed=0)
    assert by_patient.names == ("p1", "p2", "p3", "p4", "p5")
    assert by_patient.indices[0].tolist() == [0, 2]
    with caplog.at_level("INFO"):
        large = Natural(smallest_client=2).assign(data, seed=0)
    assert large.names == ("north", "south")
    assert large.notes == {"dropped_clients": 1, "dropped_images": 1}
    assert "'dropped_clients': 1" in caplog.text


def test_natural_says_what_is_missing() -> None:
    with pytest.raises(UserError, match="do not give the site of each image"):
        Natural().assign(table([[1]]), seed=0)
    data = replace(table([[1], [0], [1]]), groups=("p", "p", "q"))
    with pytest.raises(UserError, match="no patient has 5 images, the largest has 2"):
        Natural(by="patient", smallest_client=5).assign(data, seed=0)


def test_positive_only_clients_know_ones_of_one_class() -> None:
    data = random_table()
    assignment = PositiveOnly(replicas=2).assign(data, seed=0)
    assert assignment.names[:3] == ("a-0", "a-1", "b-0")
    for number, (rows, known) in enumerate(zip(assignment.indices, assignment.known)):
        assert known.any(0).nonzero().flatten().tolist() == [number // 2]
        assert known[:, number // 2].all()
        assert data.known[rows][known].all()
        assert data.labels[rows][known].all()  # no negatives at all
    without = ~((data.labels == 1) & data.known).any(1)
    assert assignment.notes["dropped_images"] == int(without.sum())
    for one, two in zip(assignment.indices[::2], assignment.indices[1::2]):
        assert abs(len(one) - len(two)) <= 1


def test_positive_only_replicates_an_image_for_each_of_its_classes() -> None:
    data = table([[1, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]])
    assignment = PositiveOnly(images="replicate").assign(data, seed=0)
    assert [rows.tolist() for rows in assignment.indices] == [[0], [0, 1], [1, 2]]
    assert assignment.notes == {"dropped_images": 1}
    with pytest.raises(UserError, match="class 'a' has 1 image for 2 clients"):
        PositiveOnly(images="replicate", replicas=2).assign(data, seed=0)


def test_restricted_shares_are_renormalised_and_equal_after_underflow() -> None:
    shares = np.array([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    allowed = np.array([[True, False, True], [False, True, True], [False, False, False]])
    expected = [[5 / 7, 0, 2 / 7], [0, 0.5, 0.5], [0, 0, 0]]
    np.testing.assert_allclose(restrict_shares(shares, allowed), expected)


def test_clients_are_drawn_in_proportion_to_their_shares() -> None:
    shares = np.tile([0.7, 0.0, 0.3], (20_000, 1))
    shares[0] = 0
    drawn = draw_clients(shares, np.random.default_rng(0))
    assert drawn[0] == DROPPED
    counts = np.bincount(drawn[1:], minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] / 19_999 - 0.7) < 0.013  # four deviations of 0.0032


def test_quantity_skew_changes_sizes_and_not_labels() -> None:
    data = table([[1, 0], [0, 1]] * 1000)
    even = QuantitySkew(clients=4, concentration=1e9).assign(data, seed=0)
    assert [len(rows) for rows in even.indices] == [500] * 4
    largest = []
    for seed in range(5):
        skewed = QuantitySkew(clients=4, concentration=0.5).assign(data, seed)
        sizes = [len(rows) for rows in skewed.indices]
        assert sum(sizes) == 2000
        largest.append(max(sizes) / 2000)
        for rows in skewed.indices:
            share = data.labels[rows][:, 0].float().mean()
            assert abs(share - 0.5) < 2.5 / len(rows) ** 0.5  # five deviations
    # The largest of four Dirichlet(0.5) shares is on average about 0.6.
    assert 0.45 < np.mean(largest) < 0.75


def with_pixels(images: torch.Tensor) -> MultiLabelDataset:
    labels = torch.ones(len(images), 1, dtype=torch.uint8)
    ids = tuple(map(str, range(len(images))))
    return MultiLabelDataset(
        images=images, labels=labels, known=labels == 1, classes=("a",), ids=ids
    )


@pytest.mark.parametrize("by", ["brightness", "contrast"])
def test_feature_skew_gives_a_client_few_bands_of_how_images_look(by: str) -> None:
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    images = torch.zeros(300, 1, 2, 2, dtype=torch.uint8)
    images[order, :, 0] = (torch.arange(300) * 255 // 299).to(torch.uint8)[:, None, None]
    # Half of the pixels are black: brightness and contrast both rise in this order.
    rank = torch.empty(300, dtype=torch.int64)
    rank[order] = torch.arange(300)
    skew = FeatureSkew(clients=3, concentration=1e9, by=by, domains=3)  # type: ignore[arg-type]
    even = skew.assign(with_pixels(images), seed=0)
    for rows in even.indices:  # a third of each band
        assert np.bincount(rank[rows] // 100).tolist() == pytest.approx([33.3] * 3, abs=1)
    skew = FeatureSkew(clients=3, concentration=0.01, by=by, domains=3, smallest_client=50)  # type: ignore[arg-type]
    rows_of = skew.assign(with_pixels(images), seed=0).indices
    held = [np.bincount(rank[rows] // 100, minlength=3) for rows in rows_of]
    assert np.mean([counts.max() / counts.sum() for counts in held]) > 0.9


def test_feature_skew_by_site_spreads_each_site() -> None:
    data = replace(table(torch.zeros(200, 1)), sites=("north", "south") * 100)
    found = FeatureSkew(clients=2, concentration=1e9, by="site").assign(data, seed=0)
    assert [Counter(data.sites[row] for row in rows.tolist()) for rows in found.indices] == [
        {"north": 50, "south": 50}
    ] * 2
    with pytest.raises(UserError, match="needs the site of each image"):
        FeatureSkew(clients=2, concentration=1.0, by="site").assign(table([[1]]), seed=0)
    with pytest.raises(UserError, match="only their labels are read here"):
        FeatureSkew(clients=2, concentration=1.0).assign(data, seed=0)
