"""SCAFFOLD: control variates, on the two-client parabola of its card."""

from __future__ import annotations

import pytest
import torch
from support.scalar_client import LAYOUT, train_one_weight

from fedquilt.core.payload import Mean, Sum
from fedquilt.core.totals import Accumulator
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.scaffold import Scaffold

OBJECTIVES = {"one": lambda x: 0.5 * x**2, "two": lambda x: 1.5 * (x - 4) ** 2}


def _scalar(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.tensor([value], dtype=torch.float64)}


def _rounds(count: int, cohorts: list[tuple[str, ...]] | None = None):  # type: ignore[no-untyped-def]
    """Yield (server, client states) after each round of two local steps with lr 0.1."""
    method = Scaffold()
    server = {"weights": _scalar(1.0), "control": _scalar(0.0)}
    states: dict[str, dict] = {"one": {}, "two": {}}
    for index in range(count):
        received = method.broadcast(server)
        expected = {"body": Mean(_scalar(0.0), 0.0), "control": Sum(_scalar(0.0))}
        accumulator = Accumulator(expected, population=2)
        for name in cohorts[index] if cohorts else ("one", "two"):
            _, update, states[name] = train_one_weight(
                method, OBJECTIVES[name], received, states[name], steps=2, lr=0.1
            )
            accumulator.add(name, update)
        server = method.update(server, accumulator.totals())
        yield server, states


def test_three_rounds_follow_the_card() -> None:
    # Round 1, c = c_k = 0. Client one: 1 -> 0.9 -> 0.81; client two: 1 -> 1.9 -> 2.53;
    # x = (0.81 + 2.53) / 2 = 1.67; c_1 = (1 + 0.9) / 2 = 0.95; c_2 = (-9 - 6.3) / 2 = -7.65.
    found = [(s["weights"]["w"].item(), s["control"]["w"].item()) for s, _ in _rounds(3)]
    expected = [(1.67, -3.35), (2.1485, -2.3925), (2.458465, -1.549825)]
    for got, wanted in zip(found, expected, strict=True):
        assert got == pytest.approx(wanted, abs=1e-12)


def test_client_variates_after_the_first_round() -> None:
    _, states = next(_rounds(1))
    assert states["one"]["control"]["w"].item() == pytest.approx(0.95)
    assert states["two"]["control"]["w"].item() == pytest.approx(-7.65)
    assert "gradient_sum" not in states["one"]  # scratch of the round is not kept


def test_it_converges_to_the_optimum_of_the_mean() -> None:
    *_, (server, states) = _rounds(200)
    assert server["weights"]["w"].item() == pytest.approx(3.0, abs=1e-6)
    assert server["control"]["w"].item() == pytest.approx(0.0, abs=1e-6)
    assert states["one"]["control"]["w"].item() == pytest.approx(3.0, abs=1e-6)
    assert states["two"]["control"]["w"].item() == pytest.approx(-3.0, abs=1e-6)


def test_fedavg_ends_beside_the_optimum() -> None:
    # Two steps multiply x by 0.9^2 = 0.81, and x - 4 by 0.7^2 = 0.49. At rest the mean is x again:
    # (0.81 x + 0.49 x + 2.04) / 2 = x, so x = 2.04 / 0.7 = 2.9142857 where the optimum is 3.
    method = FedAvg(weighting="uniform")
    server = {"weights": _scalar(1.0)}
    for _ in range(100):
        accumulator = Accumulator({"body": Mean(_scalar(0.0), 0.0)}, population=2)
        for name, objective in OBJECTIVES.items():
            sent = train_one_weight(method, objective, server, {}, steps=2, lr=0.1)[1]
            accumulator.add(name, sent)
        server = method.update(server, accumulator.totals())
    assert server["weights"]["w"].item() == pytest.approx(2.9142857, abs=5e-8)


@pytest.mark.parametrize("control", [0.0, 7.0, -100.0])
def test_one_step_of_everybody_is_a_step_of_the_mean_whatever_the_variates(control: float) -> None:
    # At x = 1 the gradients are 1 and -9, their mean -4: x = 1 + 0.1 * 4, as the clients'
    # variates have the server's as their mean.
    method, own = Scaffold(), {"one": control + 5.0, "two": control - 5.0}
    server = {"weights": _scalar(1.0), "control": _scalar(control)}
    expected = {"body": Mean(_scalar(0.0), 0.0), "control": Sum(_scalar(0.0))}
    accumulator = Accumulator(expected, population=2)
    for name, objective in OBJECTIVES.items():
        state = {"control": _scalar(own[name])}
        sent = train_one_weight(method, objective, server, state, steps=1, lr=0.1)[1]
        accumulator.add(name, sent)
    server = method.update(server, accumulator.totals())
    assert server["weights"]["w"].item() == pytest.approx(1.4, abs=1e-12)
    assert server["control"]["w"].item() == pytest.approx(-4.0, abs=1e-12)


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_the_mean_gradient_is_the_papers_option_two_under_plain_descent(steps: int) -> None:
    c, c_k, lr = 2.0, -3.0, 0.1
    received, state = {"weights": _scalar(1.0), "control": _scalar(c)}, {"control": _scalar(c_k)}
    weights, _, kept = train_one_weight(
        Scaffold(), OBJECTIVES["two"], received, state, steps=steps, lr=lr
    )
    option_two = c_k - c + (1.0 - weights["w"].item()) / (steps * lr)
    assert kept["control"]["w"].item() == pytest.approx(option_two, abs=1e-12)


def test_rows_of_a_class_without_labels_move_as_the_others_would_move_them() -> None:
    """The client's own gradient of the row is 0; the server's variate is not masked away."""
    received = {"weights": _scalar(1.0), "control": _scalar(-3.0)}
    weights, _, kept = train_one_weight(Scaffold(), lambda x: 0 * x, received, {}, steps=2, lr=0.1)
    assert weights["w"].item() == pytest.approx(1.6)  # 1 + 2 * 0.1 * 3
    assert kept["control"]["w"].item() == 0.0


def test_the_servers_variate_stays_the_mean_of_all_clients_when_few_take_part() -> None:
    cohorts = [("one",), ("two",), ("one", "two"), ("two",)]
    for server, states in _rounds(4, cohorts):
        controls = [state.get("control", _scalar(0.0))["w"].item() for state in states.values()]
        assert server["control"]["w"].item() == pytest.approx(sum(controls) / 2, abs=1e-12)


def test_every_trainable_weight_has_a_variate() -> None:
    assert LAYOUT.body == ("w",)
    server, _ = next(_rounds(1))
    assert server["control"].keys() == server["weights"].keys()
