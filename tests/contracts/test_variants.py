"""Published ports and other options keep the promises that methods make with their defaults."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.tiny_federation import METHOD_NAMES, Federation, make_federation, make_method

from fedquilt.core.registry import find
from fedquilt.core.tree import same_bits
from fedquilt.engines.cuda_graph.engine import CudaGraphEngine
from fedquilt.methods import METHODS
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

NEEDED: dict[tuple[str, str], dict[str, object]] = {
    # Not thousands of steps, nor class weights in thousands, by which SGD diverges.
    ("site-aware", "released"): {"branch_steps": 2, "joint_steps": 2, "mean_weights": False},
    ("fedpu", "published"): {"prior": (0.2,)},  # which a variant cannot know
    ("cbafed", "released"): {"threshold_range": (0.5, 0.5)},  # or nobody is sure in a few rounds
}
ONE_CLASS_AN_IMAGE = {("fedpu", "published"), ("fedvls", "published"), ("fedlsm", "single-label")}
OPTIONS: dict[tuple[str, str], dict[str, object]] = {
    ("fedfixmatch", "by entry"): {"gate": "entry", "threshold": 0.5},
    ("fednoro", "distance-aware"): {"distance_aware": True},
    ("spherefed", "cross-entropy"): {"fit": "cross-entropy"},
    ("spherefed", "scaled"): {"target": "scaled"},
    ("surgical-aggregation", "head first"): {"head_steps": 2},
    ("flexible-fl", "heads last"): {"shared_rounds": 1},
    ("fssl", "others count"): {"labelled_weight": 0.5},
    ("fedlsm", "random ranking"): {"entropy": "random"},
    ("quilt", "both views"): {"both_views": True},
}
CASES = {
    (name, variant): {**settings, **NEEDED.get((name, variant), {})}
    for name in METHOD_NAMES
    for variant, settings in find("method", METHODS, name).variants.items()
} | OPTIONS
every_case = pytest.mark.parametrize("case", CASES, ids=" ".join)
ANNOTATED = ((0,), (1,), (2,), (0, 1, 2))  # the last one's images have nothing missing


def _made(case: tuple[str, str], garbage: int | None = None) -> tuple[Federation, Method]:
    """By SGD, whose steps do not blow up the last bit of a gradient near 0, as Adam's do."""
    method = make_method(case[0], **CASES[case])
    training = replace(method.training, optimizer="sgd", momentum=0.5, decay="coupled")
    method = replace(method, training=training)
    federation = make_federation(annotated=ANNOTATED, garbage=garbage)
    if case in ONE_CLASS_AN_IMAGE:
        clients = {}
        for name, data in federation.clients.items():
            further = data.known & (data.positives().cumsum(1) > 1)
            clients[name] = replace(data, labels=data.labels.masked_fill(further, 0))
        federation = replace(federation, clients=clients)
    return federation.fitted(method), method


def _trained(federation: Federation, method: Method, engine: object = None) -> State:
    engine = engine or federation.engine()
    server = start_server(method, federation.task, engine)  # type: ignore[arg-type]
    for round_ in run_rounds(method, federation.task, engine, server):  # type: ignore[arg-type]
        server = round_.server
    return server


@every_case
def test_garbage_in_blank_labels_changes_no_bit(case: tuple[str, str]) -> None:
    assert same_bits(_trained(*_made(case)), _trained(*_made(case, garbage=1)))


@every_case
def test_the_recorded_engine_gives_the_same_bits(case: tuple[str, str]) -> None:
    federation, method = _made(case)
    settings = {"device": "cpu", "slots": 1, "channels_last": False}
    engine = CudaGraphEngine(federation.task, federation.clients, **settings)  # type: ignore[arg-type]
    found = _trained(federation, method, engine)
    assert engine.capture_failure is None
    assert same_bits(found, _trained(federation, method))


@every_case
def test_it_is_another_method_than_the_default(case: tuple[str, str]) -> None:
    federation, method = _made(case)
    defaults = NEEDED.get(case, {})
    default = replace(make_method(case[0], **defaults), training=method.training)
    assert not same_bits(_trained(federation, method), _trained(federation, default))
