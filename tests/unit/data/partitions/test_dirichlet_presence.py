"""Dirichlet shares among clients that hold only some classes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from support.label_table import LabelTable, composites, random_table, table

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import allocate
from fedquilt.data.annotations.rules import Full
from fedquilt.data.partitions.dirichlet_presence import DirichletPresence
from fedquilt.data.partitions.fitted_sets import fitted_sets
from fedquilt.data.partitions.partition import DROPPED


@pytest.mark.parametrize(
    ("share", "classes", "budget"),
    # The paper's four, a half rounded up (3.5), and 14.5, which is 14.499... as a binary float.
    [(0.5, 10, 5), (0.71, 7, 5), (0.5, 20, 10), (0.5, 14, 7), (0.5, 7, 4), (0.29, 50, 15)],
)
def test_class_budget_is_rounded_half_up(share: float, classes: int, budget: int) -> None:
    partition = DirichletPresence(clients=10, concentration=0.5, presence_share=share)
    assert partition.class_budget(classes) == budget


def dense_table() -> LabelTable:
    """Full labels with up to six positives per image, so that some images fit no client."""
    return replace(random_table(2000), known=torch.ones(2000, 6, dtype=torch.bool))


@pytest.mark.parametrize("choose_by", ["all-positives", "rarest-positive"])
@pytest.mark.parametrize("uncovered", ["drop", "mask", "relax"])
def test_presence_limits_the_classes_of_a_client(uncovered: str, choose_by: str) -> None:
    data = dense_table()
    partition = DirichletPresence(
        clients=5,
        concentration=0.3,
        presence_share=0.5,  # 3 of 6
        uncovered=uncovered,
        choose_by=choose_by,
    )
    assignment = partition.assign(data, seed=0)
    uncovered_images = assignment.notes["uncovered_images"]
    assert uncovered_images > 0
    assert assignment.notes["dropped_images"] == (uncovered_images if uncovered == "drop" else 0)
    sets = [
        {data.classes.index(name) for name in each} for each in assignment.notes["classes_dealt"]
    ]
    assert {len(each) for each in sets} == {3}
    holders = Counter(column for each in sets for column in each)
    assert sorted(holders.values()) == [2, 2, 2, 3, 3, 3]  # 5 clients x 3 classes over 6 classes
    foreign_images = masked_images = 0
    for client, rows in enumerate(assignment.indices):
        positives = data.labels[rows] == 1
        foreign = positives.clone()
        foreign[:, sorted(sets[client])] = False
        foreign_images += int(foreign.any(1).sum())
        if assignment.known is not None:
            assert torch.equal(~assignment.known[client], foreign)
            positives &= assignment.known[client]
            masked_images += int((~assignment.known[client]).any(1).sum())
        if uncovered != "relax":
            assert int(positives.any(0).sum()) <= 3
    assert foreign_images == (0 if uncovered == "drop" else uncovered_images)
    assert masked_images == (uncovered_images if uncovered == "mask" else 0)


def test_presence_keeps_the_largest_overlap_of_an_uncovered_image() -> None:
    data = dense_table()
    partition = DirichletPresence(
        clients=5, concentration=0.3, presence_share=0.5, uncovered="relax"
    )
    assignment = partition.assign(data, seed=0)
    sets = torch.zeros(5, 6, dtype=torch.int64)
    for client, names in enumerate(assignment.notes["classes_dealt"]):
        sets[client, [data.classes.index(name) for name in names]] = 1
    for client, rows in enumerate(assignment.indices):
        overlap = data.labels[rows].long() @ sets.T
        assert torch.equal(overlap[:, client], overlap.max(dim=1).values)


def test_presence_spreads_images_without_positives_evenly() -> None:
    labels = torch.cat([composites(4, 50, 20).labels, torch.zeros(103, 4, dtype=torch.uint8)])
    partition = DirichletPresence(clients=4, concentration=0.2, presence_share=0.75)
    assignment = partition.assign(table(labels), seed=0)
    without = [int((labels[rows].sum(1) == 0).sum()) for rows in assignment.indices]
    assert sorted(without) == [25, 26, 26, 26]


def test_presence_of_all_classes_drops_nothing() -> None:
    partition = DirichletPresence(clients=5, concentration=0.3, presence_share=1.0)
    assignment = partition.assign(dense_table(), seed=0)
    assert assignment.notes["dropped_images"] == assignment.notes["uncovered_images"] == 0


@pytest.mark.parametrize(("classes", "share"), [(10, 0.5), (7, 0.71)])
def test_presence_covers_every_pair_of_composites(classes: int, share: float) -> None:
    data = composites(classes, singles=60, per_pair=10)
    for seed in range(5):
        for concentration in (0.5, 0.1):
            partition = DirichletPresence(
                clients=10, concentration=concentration, presence_share=share
            )
            assignment = partition.assign(data, seed)
            assert assignment.notes["dropped_images"] == 0
            assert min(len(rows) for rows in assignment.indices) >= 10


def test_presence_with_a_large_concentration_is_even_among_the_holders() -> None:
    # 20,000 images of one class each: 5 clients hold 3 of 6 classes, so 2 or 3 hold each class.
    data = table(torch.eye(6).repeat_interleave(20_000, dim=0))
    partition = DirichletPresence(clients=5, concentration=1e6, presence_share=0.5)
    assignment = partition.assign(data, seed=0)
    counts = torch.stack([data.labels[rows].sum(0) for rows in assignment.indices]).double()
    for column in counts.T:
        got = column[column > 0]
        expected = 20_000 / len(got)
        assert (got - expected).abs().max() < 5 * (20_000 * 0.25) ** 0.5  # five deviations


def test_presence_chooses_by_all_positives_or_by_the_rarest() -> None:
    # Two clients with both classes; 'a' is rarer. Shares of client 0 seen in 10,000 draws each.
    labels = [[1, 0]] * 10_000 + [[0, 1]] * 20_000 + [[1, 1]] * 10_000
    for seed in range(3):
        for choose_by in ("all-positives", "rarest-positive"):
            partition = DirichletPresence(
                clients=2, concentration=1.0, presence_share=1.0, choose_by=choose_by
            )
            rows = partition.assign(table(labels), seed).indices[0]
            rare = (rows < 10_000).double().mean() * len(rows) / 10_000
            frequent = ((rows >= 10_000) & (rows < 30_000)).sum() / 20_000
            both = (rows >= 30_000).sum() / 10_000
            wanted = rare if choose_by == "rarest-positive" else (rare + frequent) / 2
            assert abs(both - wanted) < 0.03  # over four deviations of 0.005 and 0.005


def test_presence_renormalises_each_class_over_its_holders() -> None:
    # Images of one class show each class's shares; an image of two classes then goes to a client
    # that holds both in proportion to the sum of their shares there. 4,000 draws: deviation 0.008.
    data = composites(6, singles=4000, per_pair=4000)
    partition = DirichletPresence(clients=5, concentration=0.5, presence_share=0.5)
    assignment = partition.assign(data, seed=0)
    client_of = torch.full((len(data.labels),), DROPPED)
    for client, rows in enumerate(assignment.indices):
        client_of[rows] = client
    counts = (
        torch.stack([(client_of.view(-1, 4000) == k).sum(1) for k in range(5)]) / 4000
    )  # (K, 21)
    shares, held = counts[:, :6], assignment.notes["classes_dealt"]
    compared = 0
    for number, (one, two) in enumerate(combinations(range(6), 2)):
        both = [{data.classes[one], data.classes[two]} <= set(names) for names in held]
        wanted = (shares[:, one] + shares[:, two]) * torch.tensor(both)
        if sum(both) > 1:
            compared += 1
            assert (counts[:, 6 + number] - wanted / wanted.sum()).abs().max() < 0.05
    assert compared > 0


def test_presence_gives_every_client_a_positive() -> None:
    # Plenty of images without positives fill every client; the positive ones are few and skewed.
    labels = torch.zeros(200, 2, dtype=torch.uint8)
    labels[:8, 0] = labels[8:16, 1] = 1
    partition = DirichletPresence(clients=4, concentration=0.2, presence_share=1.0)
    drawn = [partition.assign(table(labels), seed) for seed in range(5)]
    assert max(each.notes["draws"] for each in drawn) > 1
    assert all(labels[rows].any() for each in drawn for rows in each.indices)


@pytest.mark.parametrize("concentration", [0.01, 0.001])
def test_presence_survives_a_tiny_concentration(concentration: float) -> None:
    partition = DirichletPresence(
        clients=4, concentration=concentration, presence_share=0.5, smallest_client=1, attempts=2000
    )
    assignment = partition.assign(composites(6, singles=50, per_pair=5), seed=0)
    assert sum(len(rows) for rows in assignment.indices) + assignment.notes["dropped_images"] == 375


def test_presence_refuses_impossible_settings() -> None:
    good = DirichletPresence(clients=2, concentration=0.5, presence_share=0.5)
    with pytest.raises(UserError, match="none of 4 draws gave every client 400 images"):
        replace(good, smallest_client=400, attempts=4).assign(random_table(), 0)
    with pytest.raises(UserError, match="2 clients with 2 classes each reach at most 4 of the 6"):
        replace(good, presence_share=0.34).assign(random_table(), 0)
    with pytest.raises(UserError, match="between 1 and 6 of the classes, found 0"):
        replace(good, presence_share=0.05).assign(random_table(), 0)
    with pytest.raises(
        UserError, match=r"presence_share must be above 0 and at most 1, found 1\.5"
    ):
        replace(good, presence_share=1.5).assign(random_table(), 0)
    with pytest.raises(UserError, match="concentration must be positive"):
        replace(good, concentration=-1.0).assign(random_table(), 0)


@pytest.mark.parametrize(
    ("choose_by", "digest"),
    [("all-positives", "367c4e105ae82ec4"), ("rarest-positive", "72c78ea1044ca46f")],
)
def test_allocations_of_earlier_versions_keep_their_hash(choose_by: str, digest: str) -> None:
    partition = DirichletPresence(
        clients=5, concentration=0.3, presence_share=0.5, choose_by=choose_by
    )
    assert allocate(composites(6, 40, 5), partition, Full(), 3).hash.startswith(digest)


def street_scenes(images: int = 4000) -> LabelTable:
    """Like PASCAL VOC: 20 classes, a third of the images with two or three, in five groups."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.zeros(images, 20, dtype=torch.uint8)
    first = torch.multinomial(torch.linspace(1, 4, 20), images, True, generator=generator)
    labels[torch.arange(images), first] = 1
    for share in (0.33, 0.1):
        others = (first // 4) * 4 + torch.randint(0, 4, (images,), generator=generator)
        has_other = torch.rand(images, generator=generator) < share
        labels[has_other.nonzero()[:, 0], others[has_other]] = 1
    return table(labels)


def largest_share(data: LabelTable, concentration: float, choose_by: str, seed: int) -> float:
    """The share of a class that its largest client holds, averaged over classes."""
    partition = DirichletPresence(
        clients=10, concentration=concentration, presence_share=0.5, choose_by=choose_by
    )
    rows = partition.assign(data, seed).indices
    counts = torch.stack([data.labels[each].sum(0) for each in rows]).double()
    assert int((counts > 0).sum(1).max()) <= 10  # classes at a client
    return float((counts / counts.sum(0)).max(0).values.mean())


def test_a_small_beta_concentrates_classes_if_shares_come_first() -> None:
    # The largest of ten shares from Dir(0.05) is 0.82 on average, from Dir(0.01) it is 0.96.
    data = street_scenes()
    gains = {
        choose_by: [
            largest_share(data, 0.01, choose_by, seed) - largest_share(data, 0.05, choose_by, seed)
            for seed in range(3)
        ]
        for choose_by in ("shares-first", "rarest-positive")
    }
    assert min(gains["shares-first"]) > 0.05
    assert sum(gains["rarest-positive"]) < 0.5 * sum(gains["shares-first"])


def test_class_sets_fit_the_shares() -> None:
    # Classes a, b, c; 90 % of a and c belong to client 0, 80 % of b to client 1. With a budget of
    # two, client 1 adds the class that appears beside b most often: c (7 images) and not a (3).
    patterns = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 1, 0], [0, 1, 1]], dtype=bool)
    images, main = np.array([5, 5, 5, 3, 7]), np.array([0, 2, 1, 1, 1])
    shares = np.array([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    sets = fitted_sets(patterns, images, main, shares, budget=2)
    assert sets.tolist() == [[True, False, True], [False, True, True]]
