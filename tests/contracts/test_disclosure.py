"""Under a disclosure floor no method sends a value computed from too few patients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
import torch
from support.tiny_federation import METHOD_NAMES, Federation, make_federation, make_method

from fedquilt.core.payload import Mean, Update, addressed, weight_of
from fedquilt.core.tree import leaves, same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.privacy.disclosure_floor import DisclosureFloor, provenance_of
from fedquilt.training.client import LOSS_PART, Workspace, run_client
from fedquilt.training.method import Method, State
from fedquilt.training.provenance import KNOWN_GROUPS, OF_ANNOTATORS
from fedquilt.training.rounds import run_rounds, start_server

RARE = 1  # positives of class 0 at the first site
every_method = pytest.mark.parametrize("name", METHOD_NAMES)


def federation_with_a_rare_class(method: Method) -> Federation:
    """Every site annotates class 0, of which the first one has a single positive."""
    federation = make_federation(annotated=((0, 1), (0, 1), (0, 2))).fitted(method)
    labels = federation.clients["site-0"].labels.clone()
    labels[:, 0] = 0
    labels[:RARE, 0] = 1
    first = replace(federation.clients["site-0"], labels=labels)
    return replace(federation, clients={**federation.clients, "site-0": first})


def train(federation: Federation, method: Method, min_cell: int) -> State:
    transforms = (DisclosureFloor(min_cell),)
    engine = SequentialEngine(federation.task, federation.clients, transforms=transforms)
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server


def sent(federation: Federation, method: Method, client: str) -> tuple[Update, State]:
    """Return the client's second round, in which staged methods send all their parts."""
    task, data = federation.task, federation.clients[client]
    payload = method.broadcast(start_server(method, task, federation.engine()))
    workspace = Workspace.of(task, torch.device("cpu"))
    update, kept = run_client(method, task, workspace, data, addressed(payload, client), {}, 1)
    return update, kept["method"]


@every_method
def test_every_part_declares_its_provenance(name: str) -> None:
    method = make_method(name)
    federation = make_federation(backbone="small-resnet").fitted(method)
    update, _ = sent(federation, method, "site-0")
    for part in (*update, *method.survey(federation.clients["site-0"])):
        declared = provenance_of(part, method)
        rules = declared.values() if isinstance(declared, Mapping) else [declared]
        for rule in rules:
            each = rule if isinstance(rule, tuple) else (rule,)
            assert all(callable(one) or one in KNOWN_GROUPS for one in each)


@every_method
def test_training_works_under_a_floor(name: str) -> None:
    method = make_method(name)
    federation = federation_with_a_rare_class(method)
    server = train(federation, method, min_cell=5)
    for path, leaf in leaves(server):
        assert not leaf.is_floating_point() or bool(torch.isfinite(leaf).all()), path


@every_method
def test_a_floor_that_all_groups_reach_changes_no_bit(name: str) -> None:
    if name == "scene-gcn":
        pytest.skip("its scenes may have any number of images, even none")
    method = make_method(name)
    federation = make_federation().fitted(method)  # no side of a class has fewer than 2 images
    assert same_bits(train(federation, method, min_cell=0), train(federation, method, min_cell=2))


@every_method
def test_values_computed_from_one_image_are_withheld(name: str) -> None:
    """Class 0 at a site with one positive, in parts with a group per class."""
    settings = {} if name in {"rscfed", "fedlsm"} else {"head_rows": "positives"}
    method = make_method(name, **settings)
    federation = federation_with_a_rare_class(method)
    data = federation.clients["site-0"]
    update, state = sent(federation, method, "site-0")
    floored = DisclosureFloor(5).on_client(method, data, state, update)
    for part in floored:
        if provenance_of(part, method) in ("positives", "sides"):
            assert_empty_first_row(floored[part])


@every_method
def test_the_survey_does_not_reveal_one_image(name: str) -> None:
    """A site with one positive of a class gives the same answer as a site with none."""
    method = make_method(name)
    data = federation_with_a_rare_class(method).clients["site-0"]
    labels = data.labels.clone()
    labels[:, 0] = 0
    without = replace(data, labels=labels)
    answers = [_answer(method, each) for each in (data, without)]
    assert same_bits(*({part: one.value for part, one in each.items()} for each in answers))


def _answer(method: Method, data: ClientData) -> Update:
    return DisclosureFloor(5).on_survey(method, data, method.survey(data))


def assert_empty_first_row(part: object) -> None:
    if isinstance(part, Mean):
        assert not weight_of(part)[0].any()
    assert all(not leaf[0].any() for _, leaf in leaves(part.value))  # type: ignore[attr-defined]


def test_many_parts_have_a_group_per_class() -> None:
    """The test above needs such parts."""
    found = {
        name: [part for part, rule in make_method(name).provenance.items() if rule in OF_ANNOTATORS]
        for name in METHOD_NAMES
    }
    assert found["fedmlp"] == ["annotators", "prototypes"]
    assert found["fedirm"] == ["annotators", "relation"]
    assert found["fedaws"] == ["annotators", "head", "owned"]
    assert LOSS_PART not in found["fedmlp"]
