"""Train a tiny federation by two engines, and measure how far apart they end."""

from __future__ import annotations

from dataclasses import replace

import torch
from support.tiny_federation import Federation, make_method

from fedquilt.core.tree import Tree, leaves
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

TOLERANCE = 1e-5  # a gap up to this counts as rounding


def train(
    federation: Federation, method: Method, engine: SequentialEngine, shift: int | None = None
) -> State:
    """Return the server's state after all rounds.

    Args:
        shift: random seed of a relative change of about 1e-7 to the first weights; None for none.
    """
    server = start_server(method, federation.task, engine)
    if shift is not None:
        random = torch.Generator().manual_seed(shift)
        server["weights"] = {
            name: value * (1 + 1e-7 * torch.randn(value.shape, generator=random))
            for name, value in server["weights"].items()
        }
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server


def largest_gap(first: Tree, second: Tree) -> float:
    other = dict(leaves(second))
    gaps = [(leaf.double() - other[path].double()).abs().max() for path, leaf in leaves(first)]
    return float(torch.stack(gaps).max())


def with_sgd(method: Method) -> Method:
    """Train by SGD: Adam's steps amplify the last bit of a gradient near 0."""
    training = replace(method.training, optimizer="sgd", momentum=0.5, decay="coupled")
    return replace(method, training=training)


def comparable_method(name: str) -> Method:
    """Return a method with SGD and without dropout, which draws other numbers on a GPU."""
    settings = {"dropout": 0.0} if name in ("fedlgt", "fedc-tran") else {}
    return with_sgd(make_method(name, **settings))
