"""The result of one process with the cohorts from a study's history."""

from __future__ import annotations

from running_study import RunningStudy
from safetensors.torch import load_file

from fedquilt.core.aggregation_rules import AggregationRules
from fedquilt.core.fixed_point import Summation
from fedquilt.core.tree import Weights
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.training.method import State
from fedquilt.training.rounds import start_server


def local_weights(study: RunningStudy, summation: Summation = "plain") -> Weights:
    method, task = study.study.recipe.method, study.simulation.task
    engine = SequentialEngine(
        task,
        study.simulation.clients,
        states=StatesInMemory(),
        rules=AggregationRules(summation=summation),
    )
    server: State = start_server(method, task, engine)
    for record in study.history():
        totals = engine.exchange(
            method, method.broadcast(server), record["round"] - 1, sorted(record["cohort"])
        )
        server = method.update(server, totals)
    weights = method.global_weights(server)
    assert weights is not None
    return weights


def largest_difference(study: RunningStudy) -> float:
    """Return the largest difference between the weights of the study and of one process."""
    here, there = local_weights(study), load_file(study.run_folder / "model.safetensors")
    assert here.keys() == there.keys()
    return max(float((here[name] - there[name]).abs().max()) for name in here)
