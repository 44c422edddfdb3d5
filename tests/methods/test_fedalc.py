"""FedALC: rows arranged by label correlation, computed from keyed hashes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.tiny_federation import Federation, make_federation, make_method, synthetic_images
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Gather, addressed
from fedquilt.core.tree import same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.methods.fedalc import FedALC
from fedquilt.methods.fedaws import ROWS
from fedquilt.training.client import LOSS_PART, Workspace, run_client
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import start_server

# Classes 0 and 1 always occur together; class 2 shares 2 of its 5 images with them.
TRUTH = tensor([[1, 1, 0]] * 6 + [[1, 1, 1]] * 2 + [[0, 0, 1]] * 3 + [[0, 0, 0]] * 2)


def shared_images(labels: Tensor = TRUTH) -> Federation:
    """A site per class with its positives; an image of several classes is at several sites."""
    federation = make_federation()
    images = synthetic_images(labels, torch.Generator().manual_seed(5))
    clients = {}
    for column, (name, data) in enumerate(federation.clients.items()):
        rows = (labels[:, column] == 1).nonzero().flatten()
        known = (torch.arange(3) == column).repeat(len(rows), 1)
        own = torch.where(known, labels[rows], 0).to(torch.uint8)
        clients[name] = replace(data, images=images, indices=rows, labels=own, known=known)
    return Federation(federation.task, clients)


def started(method: Method, federation: Federation) -> State:
    fitted = federation.fitted(method)
    return start_server(method, fitted.task, fitted.engine())


def test_correlations_come_from_shared_images() -> None:
    counts = TRUTH.T @ TRUTH
    assert counts.tolist() == [[8, 8, 2], [8, 8, 2], [2, 2, 5]]
    overlap = started(make_method("fedalc"), shared_images())["together"]
    # 8 of 8; 2 of the 5 of the rarer class.
    assert overlap.flatten().tolist() == pytest.approx([0, 1, 0.4, 1, 0, 0.4, 0.4, 0.4, 0])
    conditional = started(make_method("fedalc", correlation="conditional"), shared_images())
    # (2/8 + 2/5) / 2
    assert conditional["together"][0, 2].item() == pytest.approx(0.325)


def test_the_order_of_images_and_clients_does_not_matter() -> None:
    method = make_method("fedalc")
    federation = shared_images()
    turned = {
        name: replace(
            data, indices=data.indices.flip(0), labels=data.labels.flip(0), known=data.known.flip(0)
        )
        for name, data in reversed(federation.clients.items())
    }
    other = started(method, Federation(federation.task, turned))
    assert torch.equal(started(method, federation)["together"], other["together"])


def test_without_common_images_it_is_fedaws_bit_for_bit() -> None:
    alone = tensor([[1, 0, 0]] * 5 + [[0, 1, 0]] * 5 + [[0, 0, 1]] * 5)
    federation = shared_images(alone)
    aws = federation.train(make_method("fedaws"))
    assert same_bits(federation.train(make_method("fedalc", spread_steps=1)), aws)
    common = shared_images()
    apart = common.train(make_method("fedaws"))
    assert not same_bits(common.train(make_method("fedalc", spread_steps=1)), apart)


def test_correlated_rows_end_nearer_than_others() -> None:
    rows = shared_images().train(make_method("fedalc", spread_steps=100))["weights"][ROWS]
    gram = rows @ rows.T
    assert gram[0, 1].item() > 0.9
    # d = 1 - 0.4 minimises 0.4 d^2 + 0.6 (1 - d)^2 for either row of the close pair.
    assert gram[:2, 2].tolist() == pytest.approx([0.4, 0.4], abs=0.15)


def test_fixed_rows_converge_before_training_and_stay() -> None:
    method = make_method("fedalc", **FedALC.variants["fixed"])
    federation = shared_images()
    server = started(method, federation)
    rows = server["weights"][ROWS]
    assert rows.norm(dim=1).tolist() == pytest.approx([1.0] * 3, abs=1e-5)
    assert (rows[0] @ rows[1]).item() > 0.995
    assert (rows[:2] @ rows[2]).tolist() == pytest.approx([0.4, 0.4], abs=0.01)
    trained = federation.train(method)
    assert torch.equal(trained["weights"][ROWS], rows)
    assert not same_bits(trained["weights"], server["weights"])

    fitted = federation.fitted(method)
    received = addressed(method.broadcast(server), "site-0")
    workspace = Workspace.of(fitted.task, torch.device("cpu"))
    data = federation.clients["site-0"]
    update, _ = run_client(method, fitted.task, workspace, data, received, {}, 0)
    assert update.keys() == {"body", LOSS_PART}
    assert method.expected_update(received, fitted.task).keys() == {"body"}


def test_fixed_rows_of_unrelated_classes_become_orthogonal() -> None:
    method = make_method("fedalc", fixed_rows=True)
    rows = started(method, make_federation())["weights"][ROWS]
    assert (rows @ rows.T - torch.eye(3)).max().item() < 1e-3


def test_a_class_without_positives_is_dropped() -> None:
    nobody = TRUTH.clone()
    nobody[:, 2] = 0
    federation = shared_images(nobody)
    data = federation.clients["site-2"]
    some = replace(  # an annotator without positives
        data,
        indices=torch.arange(4),
        labels=torch.zeros(4, 3, dtype=torch.uint8),
        known=(torch.arange(3) == 2).repeat(4, 1),
    )
    federation = Federation(federation.task, {**federation.clients, "site-2": some})
    method = make_method("fedalc")
    server = started(method, federation)
    assert not server["together"][2].any()
    trained = federation.train(method)
    assert torch.equal(trained["weights"][ROWS][2], server["weights"][ROWS][2])
    assert bool(torch.isfinite(trained["weights"][ROWS]).all())


def test_codes_are_sent_once_and_are_the_clients_own() -> None:
    method = make_method("fedalc")
    federation = shared_images()
    answer = method.survey(federation.clients["site-0"])
    assert answer.keys() == {"annotators", "owned", "codes"}
    part = answer["codes"]
    assert isinstance(part, Gather)
    assert part.any_length
    assert part.value["codes"].shape == (8, 16)
    server = started(method, federation)
    assert server.keys() == {"weights", "owned", "together"}  # no code is kept
    assert "codes" not in method.expected_update(
        addressed(method.broadcast(server), "site-0"), federation.fitted(method).task
    )


def test_a_federation_without_a_secret_is_refused() -> None:
    federation = make_federation()
    bare: dict[str, ClientData] = {
        name: replace(data, secret=b"") for name, data in federation.clients.items()
    }
    with pytest.raises(UserError, match="client 'site-0' has no secret"):
        Federation(federation.task, bare).train(make_method("fedalc"))


def test_mining_is_refused() -> None:
    with pytest.raises(UserError, match=r"leave out method.nearest, found 10"):
        FedALC(nearest=10)
