"""The benchmark of simulators: every tool does the same work as fedquilt."""

from __future__ import annotations

import pytest
import torch

from benchmarks.speed.simulators import simulators
from benchmarks.speed.simulators.simulated_federation import (
    BATCH,
    LEARNING_RATE,
    SETTINGS,
    RoundLog,
    local_loss,
    make_federation,
    shuffled,
)
from fedquilt.models.network import read_weights, write_weights

SETTING = next(iter(SETTINGS))


def test_one_round_by_hand_ends_with_fedquilts_weights() -> None:
    federation = make_federation(SETTING)
    network = federation.task.build_network().train()
    start = read_weights(network)
    average = {name: torch.zeros_like(value) for name, value in start.items()}
    images = sum(map(len, federation.clients.values()))
    for data in federation.clients.values():
        write_weights(network, start)
        optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
        for rows in shuffled(federation.task, data, 0).split(BATCH):
            optimizer.zero_grad()
            local_loss(network, data.pixels(rows), data.labels[rows], data.known[rows]).backward()
            optimizer.step()
        for name, value in read_weights(network).items():
            average[name] += value * (len(data) / images)
    ours = simulators.run_fedquilt(SETTING, rounds=1)
    assert simulators.gap(ours.weights[0], start, list(start)) > 1e-3  # it did train
    assert simulators.gap(ours.weights[0], average, list(start)) < 1e-6


def test_two_clients_at_a_time_do_the_same_work() -> None:
    one, two = (simulators.run_fedquilt(SETTING, 2, at_a_time=number) for number in (1, 2))
    assert simulators.gap(one.weights[-1], two.weights[-1], list(one.weights[-1])) == 0


def test_a_tool_that_did_different_work_is_refused() -> None:
    ours, theirs = RoundLog(), RoundLog()
    ours.end_round({"w": torch.tensor([1.0, 2.0])})
    theirs.end_round({"w": torch.tensor([1.0, 2.1])})
    with pytest.raises(SystemExit, match=r"pfl is 1\.0e-01 from fedquilt after one round"):
        simulators.check_same_work("pfl", theirs, ours, ["w"])


def test_the_first_round_is_left_out() -> None:
    # Rounds of 9, 1, 2 and 4 seconds: the median of the last three is 2.
    assert simulators.median_round([0.0, 9.0, 10.0, 12.0, 16.0]) == 2.0


def test_missing_tools_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(simulators, "find_spec", lambda package: None)
    assert list(simulators.installed_tools()) == ["fedquilt", "fedquilt, 2 clients at a time"]
    said = capsys.readouterr().out
    assert "pfl is left out, not installed: pfl; pip install -r benchmarks/speed/" in said
    assert "Flower, 1 actor is left out, not installed: flwr, ray, psutil" in said
