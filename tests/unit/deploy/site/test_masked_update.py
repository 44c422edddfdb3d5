"""What a site refuses to mask: nobody else could see it in the sum."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from support.secure_study import clients_of, secure_study
from support.tiny_federation import make_method

from fedquilt.core.payload import Mean, Update, weight_of
from fedquilt.core.tree import leaves, tree_map
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.deploy.site.masked_update import round_vector
from fedquilt.deploy.study import Study
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import State
from fedquilt.training.rounds import start_server

SITE = "site-0"  # annotates classes 0 and 1 of three
RANGE, BITS = 16.0, 51  # of body and head, with four sites of 21 images


@cache
def begun() -> tuple[Study, State, Update]:
    """A study, what it sends first, and the honest update of a site."""
    study = secure_study(make_method("fedavg-pl", head_rows="annotators"))
    method, federation = study.recipe.method, clients_of(study)
    received = method.broadcast(start_server(method, study.task, federation.engine()))
    workspace = Workspace.of(study.task, torch.device("cpu"))
    data = federation.clients[SITE]
    return study, received, run_client(method, study.task, workspace, data, received, {}, 0)[0]


def vector_of(**changed: Mean) -> torch.Tensor:
    study, received, update = begun()
    return round_vector(study, SITE, 0, received, {**update, **changed})


def body(*, number: float | None = None, weight: float | None = None) -> Mean:
    """The honest body, with its first number or its weight changed."""
    part = begun()[2]["body"]
    assert isinstance(part, Mean)
    value = tree_map(torch.clone, part.value)
    if number is not None:
        next(leaf for _, leaf in leaves(value)).view(-1)[0] = number
    return replace(part, value=value, weight=weight_of(part) if weight is None else weight)


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (math.nan, "NaN or infinite"),
        (math.inf, "NaN or infinite"),
        (RANGE * 1.001, "beyond 16"),
        (-RANGE * 1.001, "beyond 16"),
    ],
)
def test_a_number_that_cannot_be_summed_is_refused(number: float, reason: str) -> None:
    with pytest.raises(RefusedUpdate, match=f"'body'.*{reason}"):
        vector_of(body=body(number=number))


def test_a_number_at_the_range_is_masked() -> None:
    honest, found = vector_of(), vector_of(body=body(number=RANGE))
    (place,) = (honest != found).nonzero().flatten().tolist()
    weight = float(weight_of(begun()[2]["body"]))
    assert int(found[place]) == round(RANGE * weight * 2**BITS)


def test_a_weight_above_the_agreed_images_is_refused() -> None:
    with pytest.raises(RefusedUpdate, match="above 21, the most that was agreed"):
        vector_of(body=body(weight=21.01))


def test_a_faint_weight_leaves_nothing_of_the_part() -> None:
    """1e-100 is no integer: neither the numbers nor the weight are left."""
    honest, found = vector_of(), vector_of(body=body(weight=1e-100))
    changed = honest != found
    assert int(changed.sum()) > 1000
    assert not found[changed].any()


def test_rows_of_the_head_that_are_suppressed_leave_as_zeros() -> None:
    head = begun()[2]["head"]
    assert isinstance(head, Mean)
    nothing = Mean(tree_map(torch.zeros_like, head.value), torch.zeros_like(weight_of(head)))
    honest, found = vector_of(), vector_of(head=nothing)
    assert not found[honest != found].any()


def test_weight_of_a_class_that_the_site_does_not_annotate_is_refused() -> None:
    head = begun()[2]["head"]
    assert isinstance(head, Mean)
    weight = weight_of(head).clone()
    weight[2] = 5.0
    with pytest.raises(RefusedUpdate, match=r"'head'.*does not annotate: 'bright'"):
        vector_of(head=Mean(head.value, weight))
