"""Every method ends with the same states in several processes as in one."""

from __future__ import annotations

import pytest
from support.engine_agreement import TOLERANCE, largest_gap
from support.side_by_side import Trained, train, train_side_by_side
from support.tiny_federation import METHOD_NAMES

from fedquilt.core.tree import same_bits

RING = ("fedavg-pl", "fedmlp", "scaffold")
every_method = pytest.mark.parametrize("name", METHOD_NAMES)
Played = dict[tuple[str, str, int], Trained]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Played:
    jobs = [(name, "plain") for name in METHOD_NAMES] + [(name, "ring") for name in RING]
    return train_side_by_side(tmp_path_factory.mktemp("two"), 2, jobs)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return train_side_by_side(
        tmp_path_factory.mktemp("three"), 3, [(name, "ring") for name in RING]
    )


@every_method
def test_two_processes_train_the_models_of_one(name: str, two: Played) -> None:
    expected = train(name, "plain")
    found = [two[name, "plain", number] for number in range(2)]
    for each in found:
        assert largest_gap(each.server, expected.server) <= TOLERANCE
        assert same_bits(each.server, found[0].server)  # every process has the same server
        assert each.rounds == expected.rounds
    clients = {**found[0].clients, **found[1].clients}
    assert not found[0].clients.keys() & found[1].clients.keys()
    assert clients.keys() == expected.clients.keys()
    for client, state in clients.items():
        assert largest_gap(state, expected.clients[client]) <= TOLERANCE


@pytest.mark.parametrize("name", RING)
def test_ring_sums_have_the_same_bits_in_any_number_of_processes(
    name: str, two: Played, three: Played
) -> None:
    expected = train(name, "ring").server
    for played, count in ((two, 2), (three, 3)):
        for number in range(count):
            assert same_bits(played[name, "ring", number].server, expected)
