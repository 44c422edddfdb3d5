"""Every way to spread images: what holds for all of them, then each one's own rules."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from label_table import LabelTable
from torch import Tensor

from fedquilt.data.partitions import PARTITIONS
from fedquilt.data.partitions.dirichlet import Dirichlet
from fedquilt.data.partitions.dirichlet_presence import DirichletPresence
from fedquilt.data.partitions.iid import Iid
from fedquilt.data.partitions.k_modes import KModes, fill_empty, find_modes, mismatches
from fedquilt.data.partitions.label_count_dirichlet import LabelCountDirichlet
from fedquilt.data.partitions.natural import Natural
from fedquilt.data.partitions.partition import DROPPED, Partition
from fedquilt.data.partitions.patterns import label_patterns, rarest_positive
from fedquilt.data.partitions.positive_only import PositiveOnly
from fedquilt.data.partitions.shares import draw_clients, restricted
from fedquilt.errors import UserError
from fedquilt.registry import find


def table(labels: Tensor | list[list[int]], known: Tensor | None = None) -> LabelTable:
    labels = torch.as_tensor(labels, dtype=torch.uint8)
    known = torch.ones_like(labels, dtype=torch.bool) if known is None else known
    return LabelTable(
        labels=labels, known=known, classes=tuple("abcdefghijklmnopqrst")[: labels.shape[1]]
    )


def random_table(images: int = 600, classes: int = 6, seed: int = 0) -> LabelTable:
    """Rare and frequent classes, a fifth of the cells blank, four sites and 97 patients."""
    generator = torch.Generator().manual_seed(seed)
    shares = torch.linspace(0.05, 0.5, classes)
    labels = (torch.rand(images, classes, generator=generator) < shares).to(torch.uint8)
    known = torch.rand(images, classes, generator=generator) < 0.8
    return replace(
        table(labels, known),
        sites=tuple(f"site {row % 4}" for row in range(images)),
        groups=tuple(f"patient {row % 97}" for row in range(images)),
    )


def composites(classes: int, singles: int, per_pair: int) -> LabelTable:
    """As FedNCA-ML's data: images of one class and of every pair of classes."""
    rows = [[c] for c in range(classes) for _ in range(singles)]
    rows += [list(pair) for pair in combinations(range(classes), 2) for _ in range(per_pair)]
    labels = torch.zeros(len(rows), classes, dtype=torch.uint8)
    for row, positives in enumerate(rows):
        labels[row, positives] = 1
    return table(labels)


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
def test_labels_of_blank_cells_are_never_looked_at(partition: Partition) -> None:
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
    with pytest.raises(UserError, match=r"3 images cannot be spread over \d clients"):
        partition.assign(table([[1, 0], [0, 1], [1, 1]]), seed=0)


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
    with pytest.raises(UserError, match="do not say the site of each image"):
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
    with pytest.raises(UserError, match="class 'a' has 1 images to itself for 2 clients"):
        PositiveOnly(images="replicate", replicas=2).assign(data, seed=0)


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
    dealt = [
        {data.classes.index(name) for name in each} for each in assignment.notes["classes_dealt"]
    ]
    assert {len(each) for each in dealt} == {3}
    holders = Counter(column for each in dealt for column in each)
    assert sorted(holders.values()) == [2, 2, 2, 3, 3, 3]  # 5 clients x 3 classes over 6 classes
    foreign_images = masked_images = 0
    for client, rows in enumerate(assignment.indices):
        positives = data.labels[rows] == 1
        foreign = positives.clone()
        foreign[:, sorted(dealt[client])] = False
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
    dealt = torch.zeros(5, 6, dtype=torch.int64)
    for client, names in enumerate(assignment.notes["classes_dealt"]):
        dealt[client, [data.classes.index(name) for name in names]] = 1
    for client, rows in enumerate(assignment.indices):
        overlap = data.labels[rows].long() @ dealt.T
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


def test_presence_refuses_what_cannot_work() -> None:
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


def test_restricted_shares_are_renormalised_and_uniform_when_the_mass_is_gone() -> None:
    shares = np.array([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])
    allowed = np.array([[True, False, True], [False, True, True], [False, False, False]])
    expected = [[5 / 7, 0, 2 / 7], [0, 0.5, 0.5], [0, 0, 0]]
    np.testing.assert_allclose(restricted(shares, allowed), expected)


def test_clients_are_drawn_in_proportion_to_their_shares() -> None:
    shares = np.tile([0.7, 0.0, 0.3], (20_000, 1))
    shares[0] = 0
    drawn = draw_clients(shares, np.random.default_rng(0))
    assert drawn[0] == DROPPED
    counts = np.bincount(drawn[1:], minlength=3)
    assert counts[1] == 0
    assert abs(counts[0] / 19_999 - 0.7) < 0.013  # four deviations of 0.0032


def test_patterns_are_the_distinct_rows_and_say_who_has_them() -> None:
    positives = np.array([[0, 1], [1, 0], [0, 1], [0, 0]], dtype=bool)
    patterns, pattern_of = label_patterns(positives)
    assert patterns.tolist() == [[False, False], [False, True], [True, False]]
    assert np.array_equal(patterns[pattern_of], positives)


def test_k_modes_counts_mismatches() -> None:
    sample, centre = np.array([[0, 1, 1, 1]], dtype=bool), np.array([[1, 0, 1, 1]], dtype=bool)
    assert mismatches(sample, centre).tolist() == [[2]]
    assert mismatches(centre, centre).tolist() == [[0]]


def test_one_mode_is_the_majority_of_each_class_and_a_tie_is_zero() -> None:
    patterns = np.array([[0, 0, 1], [1, 0, 1], [1, 1, 0]], dtype=bool)
    # Counts 2, 1, 1 of 4 images: class 0 has 2 (a tie), class 1 has 1, class 2 has 3.
    modes, history = find_modes(patterns, np.array([2, 1, 1]), clusters=1, iterations=100)
    assert modes.tolist() == [[False, False, True]]
    assert history[-1] == 2 + 1 + 1  # class 0 differs twice, class 1 once, class 2 once


@pytest.mark.parametrize("seed", range(20))
def test_k_modes_improves_and_leaves_no_cluster_empty(seed: int) -> None:
    data = random_table(images=150, classes=5, seed=seed)
    assignment = KModes(clients=8).assign(data, seed=0)
    history = assignment.notes["mismatches"]
    assert history == sorted(history, reverse=True)
    assert min(len(rows) for rows in assignment.indices) > 0
    client_of = {int(row): k for k, rows in enumerate(assignment.indices) for row in rows}
    owners: dict[tuple[int, ...], set[int]] = {}
    for row, label in enumerate(((data.labels == 1) & data.known).int().tolist()):
        owners.setdefault(tuple(label), set()).add(client_of[row])
    assert all(len(each) == 1 for each in owners.values())  # equal vectors share a client


def test_an_empty_cluster_restarts_at_the_farthest_vector() -> None:
    patterns = np.array([[0, 0, 0], [0, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=bool)
    # Three equal modes 000: the first wins every vector. The second restarts at 111, 3 mismatches
    # away; then 001 and 011 are 1 away from the nearest mode, and the third restarts at the first.
    modes = fill_empty(patterns, np.zeros((3, 3), dtype=bool))
    assert modes.astype(int).tolist() == [[0, 0, 0], [1, 1, 1], [0, 0, 1]]


def test_k_modes_restarts_a_cluster_that_lost_its_members() -> None:
    # Found by search: an update of the modes leaves the last of four clusters without members.
    words = "0001100 0011011 0110000 0110100 1000000 1000101 1010001 1011001 1011110 1011111 "
    words += "1101000 1110101"
    patterns = np.array([[letter == "1" for letter in word] for word in words.split()])
    counts = np.array([4, 2, 4, 5, 4, 2, 4, 4, 5, 1, 4, 1])
    modes, history = find_modes(patterns, counts, clusters=4, iterations=100)
    assert set(mismatches(patterns, modes).argmin(axis=1).tolist()) == {0, 1, 2, 3}
    assert history == sorted(history, reverse=True)


def test_k_modes_with_a_cluster_for_each_vector_has_no_mismatch() -> None:
    data = composites(4, singles=3, per_pair=2)  # 4 + 6 different vectors
    assignment = KModes(clients=10).assign(data, seed=0)
    assert assignment.notes["mismatches"][-1] == 0
    with pytest.raises(UserError, match="10 different label vectors, too few"):
        KModes(clients=11).assign(data, seed=0)


def test_capped_k_modes_moves_the_surplus_to_the_nearest_client_with_room() -> None:
    # Modes 000, 110 and 111 by frequency. Of ten 000 images six stay; 110 (two mismatches) has
    # room for two and 111 (three) takes the other two.
    data = table([[0, 0, 0]] * 10 + [[1, 1, 0]] * 4 + [[1, 1, 1]] * 3)
    assignment = KModes(clients=3, largest_client=6).assign(data, seed=0)
    counts = [Counter(data.labels[rows].sum(1).tolist()) for rows in assignment.indices]
    assert counts == [{0: 6}, {2: 4, 0: 2}, {3: 3, 0: 2}]
    with pytest.raises(UserError, match="raise largest_client to 6 or more"):
        KModes(clients=3, largest_client=5).assign(data, seed=0)
