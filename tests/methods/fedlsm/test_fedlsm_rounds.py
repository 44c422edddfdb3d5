"""FedLSM in whole rounds: head rows by counts, class weights, and degenerate settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.pixel_logits import make_local, plain_federation
from support.tiny_federation import Federation, make_federation, make_method, synthetic_images
from support.tiny_runs import tiny_settings
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.totals import Accumulator, Totals
from fedquilt.core.tree import same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.methods.fedlsm import FedLSM
from fedquilt.models.network import read_weights
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import Method
from fedquilt.training.rounds import run_rounds, start_server


def _head_bias(counts: list[list[float]], changes: list[list[float]], annotated: list) -> list:
    """How far the head's bias moves if site i drew counts[i] and moves it by changes[i]."""
    method = make_method("fedlsm")
    federation = make_federation(annotated=((0, 1, 2),) * len(counts))
    task = federation.task
    server = start_server(method, task, federation.engine())
    received = method.broadcast(server)
    accumulator = Accumulator(method.expected_update(received, task), len(counts))
    for (name, data), drawn, change, columns in zip(
        federation.clients.items(), counts, changes, annotated
    ):
        known = torch.zeros_like(data.known)
        known[:, columns] = True
        local = make_local(method, known, data.labels)
        local.received, local.layout = received, task.layout
        local.state |= {"drawn": tensor(drawn), "mixed": tensor(0.0)}
        weights = dict(received["weights"])
        weights["head.bias"] = weights["head.bias"] + tensor(change)
        accumulator.add(name, method.finish(local, weights, 1)[0])
    new = method.update(server, accumulator.totals())["weights"]["head.bias"]
    found: list[float] = (new - received["weights"]["head.bias"]).tolist()
    return found


COUNTS = [[10.0, 0.0, 3.0], [0.0, 0.0, 1.0]]


def test_head_rows_by_the_positives_drawn() -> None:
    # Class 0 is the first site's, class 2 is 3/4 * 1 + 1/4 * 5 = 2. Nobody drew class 1: the mean
    # of its annotators, who have equally many images, or, without any, the row is unchanged.
    changes = [[1.0, 1.0, 1.0], [5.0, 5.0, 5.0]]
    both = _head_bias(COUNTS, changes, [[0, 1], [1, 2]])
    assert both == pytest.approx([1.0, 3.0, 2.0], abs=1e-6)
    one = _head_bias(COUNTS, changes, [[0], [1, 2]])
    assert one == pytest.approx([1.0, 5.0, 2.0], abs=1e-6)
    nobody = _head_bias(COUNTS, changes, [[0], [2]])
    assert nobody == pytest.approx([1.0, 0.0, 2.0], abs=1e-6)
    agreed = _head_bias(COUNTS, [[2.0] * 3] * 2, [[0, 1], [2]])
    assert agreed == pytest.approx([2.0] * 3, abs=1e-6)  # weights sum to 1


def test_a_client_that_drew_no_positive_has_no_weight() -> None:
    stray = [_head_bias(COUNTS, [[1.0] * 3, [x, 5.0, 5.0]], [[0], [0, 2]]) for x in (5.0, 1e6)]
    assert stray[0] == stray[1]


def _survey(method: Method, *sites: tuple[list[list[int]], list[list[int]]]) -> Totals:
    clients = [
        ClientData(
            name=str(number),
            images=torch.zeros(len(known), 1, 8, 8, dtype=torch.uint8),
            indices=torch.arange(len(known)),
            labels=tensor(labels, dtype=torch.uint8),
            known=tensor(known, dtype=torch.bool),
        )
        for number, (known, labels) in enumerate(sites)
    ]
    accumulator = Accumulator(method.survey(clients[0]), len(clients))
    for client in clients:
        accumulator.add(client.name, method.survey(client))
    return accumulator.totals()


# Class 0: 1 of 4 at the first site. Class 1: 2 of 3 at the second. Other ones are not annotated.
FIRST = ([[1, 0, 0]] * 4, [[1, 1, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1]])
SECOND = ([[0, 1, 1]] * 3, [[1, 1, 0], [1, 1, 0], [1, 0, 0]])
THIRD = ([[0, 0, 1]], [[0, 0, 1]])


def _class_weight(method: Method, *sites: tuple[list[list[int]], list[list[int]]]) -> list[float]:
    task = make_federation().task
    server = method.init_server(read_weights(task.build_network()), task, _survey(method, *sites))
    found: list[float] = method.broadcast(server)["class_weight"].tolist()
    return found


def test_class_weights_come_from_all_clients_annotated_labels() -> None:
    sites = (FIRST, SECOND, THIRD)
    assert _class_weight(FedLSM(), *sites) == [3.0, 0.5, 3.0]  # negatives / positives
    assert _class_weight(FedLSM(positive_weight_cap=2.0), *sites) == [2.0, 0.5, 2.0]


def test_a_class_without_positives_has_the_largest_weight_and_a_warning() -> None:
    with pytest.warns(UserWarning, match="no client has a positive of bright"):
        assert _class_weight(FedLSM(), FIRST, SECOND) == [3.0, 0.5, 100.0]
    assert _class_weight(FedLSM(positive_weight="none"), FIRST, SECOND) == [1.0, 1.0, 1.0]


def test_with_all_labels_it_is_fedavg_on_strong_views_but_for_head_rows() -> None:
    federation = plain_federation(annotated=((0, 1, 2),) * 3)
    lasting = make_method("fedlsm", positive_weight="none").training
    fedavg = federation.train(make_method("fedavg", positive_weight="none", training=lasting))
    uncounted = make_method("fedlsm", positive_weight="none", draw_counts=False)
    assert same_bits(federation.train(uncounted)["weights"], fedavg["weights"])

    one = replace(federation, task=replace(federation.task, round_count=1))
    counted = one.train(make_method("fedlsm", positive_weight="none"))["weights"]
    fedavg = one.train(make_method("fedavg", positive_weight="none", training=lasting))
    layout = federation.task.layout
    for name in layout.body:
        assert torch.equal(counted[name], fedavg["weights"][name]), name
    assert not torch.equal(counted["head.bias"], fedavg["weights"]["head.bias"])


def test_a_teacher_that_is_never_confident_leaves_fedavg_pl() -> None:
    """The mean runs over all three classes, of which each client annotates one: a third."""
    federation = plain_federation()

    def trained(name: str, lr: float, **settings: object) -> dict[str, Tensor]:
        method = make_method(name, positive_weight="none", **settings)
        training = replace(method.training, optimizer="sgd", lr=lr, keep_optimizer=False)
        weights: dict[str, Tensor] = federation.train(replace(method, training=training))["weights"]
        return weights

    off = {"draw_counts": False, "head_rows": "all", "mixing_strength": 0.0}
    silent = trained("fedlsm", 0.3, thresholds=(0.0, 1.0), **off)
    partial = trained("fedavg-pl", 0.1)
    for name, leaf in partial.items():
        torch.testing.assert_close(silent[name], leaf, rtol=1e-4, atol=1e-6)
    loud = trained("fedlsm", 0.3, thresholds=(0.49, 0.5), **off)
    assert not torch.allclose(loud["head.weight"], partial["head.weight"], rtol=1e-4)


@pytest.mark.parametrize(
    "settings",
    [
        FedLSM.variants["released"],
        {"draw_counts": False},
        {"mixing_strength": 0.0},
        {"weighed": "entries"},
        {"entropy": "one_sided", "uncertain_images": 5, "certain_images": 5},
        {"thresholds": (0.3, 0.6)},
    ],
)
def test_every_setting_matters(settings: dict) -> None:
    federation = plain_federation()
    sure = {"thresholds": (0.4, 0.5), "uncertain_thresholds": (0.4, 0.5)}
    plain = federation.train(make_method("fedlsm", **sure))["weights"]
    other = federation.train(make_method("fedlsm", **(sure | settings)))["weights"]
    assert not same_bits(other, plain)


def test_the_optimizer_is_kept() -> None:
    method = make_method("fedlsm")
    assert FedLSM().training.keep_optimizer
    federation = make_federation()
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    received = method.broadcast(start_server(method, federation.task, federation.engine()))
    data = federation.clients["site-0"]
    _, kept = run_client(method, federation.task, workspace, data, received, {}, 0)
    steps = kept["optimizer"]["train"]["head.bias"]["step"]
    _, kept = run_client(method, federation.task, workspace, data, received, kept, 1)
    assert kept["optimizer"]["train"]["head.bias"]["step"] == 2 * steps


def _one_class_federation() -> Federation:
    """Three sites of 30 images of one class each, each of which annotates two of three classes."""
    federation = plain_federation(rounds=12)
    clients = {}
    for number, name in enumerate(federation.clients):
        generator = torch.Generator().manual_seed(number)
        truth = torch.eye(3, dtype=torch.uint8)[torch.randint(3, (30,), generator=generator)]
        known = torch.ones(30, 3, dtype=torch.bool)
        known[:, number] = False
        images = synthetic_images(truth, generator)
        labels = torch.where(known, truth, 7)
        clients[name] = ClientData(name, images, torch.arange(30), labels, known)
    return replace(federation, clients=clients)


def test_one_class_per_image_trains() -> None:
    variant = FedLSM.variants["single-label"] | {"thresholds": (0.01, 0.7)}
    method = make_method("fedlsm", **variant)
    federation = _one_class_federation().fitted(method)
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    losses = []
    for round_ in run_rounds(method, federation.task, engine, server):
        losses.append(round_.loss)
    assert losses[-1] < 0.5 * losses[0]
    # Seed 7, 90 images: classes that a site does not annotate are recognised there too.
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    weights = round_.server["weights"]
    filled = right = 0
    for number, data in enumerate(federation.clients.values()):
        pixels = (data.images / 255 - 0.5) / 0.5
        guess = workspace.forward(weights, pixels).logits.argmax(1)
        of_missing = ~(data.known & (data.labels == 1)).any(1)
        filled += int(of_missing.sum())
        right += int((guess[of_missing] == number).sum())
    assert filled > 20
    assert right > 0.8 * filled


def test_a_model_of_one_class_per_image_predicts_shares_that_sum_to_one(tmp_path: Path) -> None:
    settings = tiny_settings("fedlsm")
    settings["data"] |= {"digits_per_image": [1, 1]}
    settings["method"] |= {"variant": "single-label"}
    run(recipe_from(settings), tmp_path / "run")
    finished = read_run(tmp_path / "run")
    assert finished.models.card["model"]["head"] == "softmax"
    images = torch.randint(0, 256, (5, *finished.models.image_shape), dtype=torch.uint8)
    shares = finished.predict(images).probabilities
    torch.testing.assert_close(shares.sum(1), torch.ones(5))
    head = finished.models.network(None).head
    features = finished.models.network(None).backbone((images / 255 - 0.5) / 0.5)
    scores = features @ head.weight.T + head.bias
    torch.testing.assert_close(shares, torch.softmax(scores, 1), atol=1e-5, rtol=1e-4)


def test_images_of_several_classes_are_refused_as_single() -> None:
    method = make_method("fedlsm", labels="single")
    with pytest.raises(UserError, match=r"'site-0' holds .* positive for several classes"):
        make_federation(annotated=((0, 1), (1, 2))).train(method)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"thresholds": (0.9, 0.1)}, "thresholds must rise within 0..1, found 0.9, 0.1"),
        ({"uncertain_thresholds": (0.1, 1.5)}, "found 0.1, 1.5"),
        ({"mixed_images": 64}, r"below training.batch_size, 64; found \(500, 2000, 64\)"),
        ({"certain_images": -1}, r"found \(500, -1, 4\)"),
        ({"unannotated": "negative"}, "leave unannotated at 'skip'"),
    ],
)
def test_impossible_settings_are_refused(settings: dict, match: str) -> None:
    with pytest.raises(UserError, match=match):
        FedLSM(**settings)
