"""FedNCA-ML: its losses on the toy of the method card, its fixed frame, its components."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.tiny_federation import Federation, make_federation, make_method
from support.tiny_runs import tiny_settings

from fedquilt.core.errors import UserError
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.methods.fednca_ml import FedNCAML
from fedquilt.models.heads.layers.etf import simplex_etf
from fedquilt.models.network import read_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run as train
from fedquilt.runs.finished_run import read_run
from fedquilt.training.averaging import weight_parts
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.rounds import start_server

OFF = {"rejection": 0.0, "compaction": 0.0}


def test_the_frame_has_the_same_bits_at_every_client_after_every_round() -> None:
    method = make_method("fednca-ml")
    federation = make_federation().fitted(method)
    task, frame = federation.task, simplex_etf(64, 3)
    received = method.broadcast(start_server(method, task, federation.engine()))
    workspace = Workspace.of(task, torch.device("cpu"))
    before = read_weights(workspace.training)
    assert not {"head.query", "head.classifier.rows"} & before.keys()  # they are never sent
    for round_index in range(2):
        for data in federation.clients.values():
            run_client(method, task, workspace, data, received, {}, round_index)
            head = workspace.training.head
            assert same_bits({"query": head.query}, {"query": frame})
            assert same_bits({"rows": head.classifier.rows}, {"rows": frame})
    assert not same_bits(read_weights(workspace.training), before)


def test_the_released_form_trains_the_frame() -> None:
    method = make_method("fednca-ml", **FedNCAML.variants["released"])
    weights = make_federation().train(method)["weights"]
    frame = simplex_etf(64, 3)
    for name in ("head.query", "head.classifier.rows"):
        assert not torch.allclose(weights[name], frame, atol=1e-4)
        assert torch.allclose(weights[name], frame, atol=0.5)
    assert not torch.equal(weights["head.query"], weights["head.classifier.rows"])
    assert weights["head.classifier.scale"].item() != 10.0
    assert bool(weights["head.classifier.bias"].any())


def _clients(*sizes: int) -> dict[str, ClientData]:
    """The first client's images, dealt out anew in these numbers."""
    data = make_federation(annotated=((0, 1, 2),), images_each=max(sizes)).clients["site-0"]
    return {
        f"site-{number}": replace(
            data,
            name=f"site-{number}",
            indices=torch.arange(size),
            labels=data.labels[:size],
            known=data.known[:size],
        )
        for number, size in enumerate(sizes)
    }


def test_clients_count_alike_whatever_their_size() -> None:
    """The mean of two clients lies half-way between what each would give alone."""
    method = make_method("fednca-ml")
    federation = make_federation(rounds=1).fitted(method)
    both = _clients(24, 8)
    results = [
        Federation(replace(federation.task, clients=tuple(some)), some).train(method)["weights"]
        for some in (both, {"site-0": both["site-0"]}, {"site-1": both["site-1"]})
    ]
    for name, together in results[0].items():
        halfway = (results[1][name] + results[2][name]) / 2
        assert torch.allclose(together, halfway, atol=1e-6), name
        if name == "head.attention.out.bias":
            by_size = (24 * results[1][name] + 8 * results[2][name]) / 32
            assert not torch.allclose(together, by_size, atol=1e-6)


def test_identical_clients_average_to_each_of_them() -> None:
    method = make_method("fednca-ml")
    federation = make_federation(rounds=1).fitted(method)
    server = start_server(method, federation.task, federation.engine())
    change = {name: torch.full_like(w, 0.125) for name, w in server["weights"].items()}
    update = weight_parts(change, federation.task.layout, 1.0, torch.ones(3))
    sums = Accumulator(method.expected_update(server, federation.task), 3)
    for client in federation.clients:
        sums.add(client, update)
    after = method.update(server, sums.totals())["weights"]
    assert same_bits(after, {name: weight + 0.125 for name, weight in server["weights"].items()})


def test_with_a_linear_head_it_is_fedavg_pl_with_equal_clients_bit_for_bit() -> None:
    method = make_method("fednca-ml", head="linear", **OFF)
    plain = make_method(
        "fedavg-pl", weighting="uniform", positive_weight="none", training=method.training
    )
    federation = make_federation()
    assert same_bits(federation.train(method), federation.train(plain))


ABLATION = {
    "fc": {"head": "linear", **OFF},
    "etf": {"head": "etf", **OFF},
    "ladm": OFF,
    "neg": {"compaction": 0.0, "rejection": 1.0},
    "pos": {"rejection": 0.0},
    "all": {"rejection": 1.0},
    "learnable-etf": {"train_query": True, **OFF},
    "learnable-random": {"train_query": True, "query": "random", **OFF},
    "fixed-random": {"query": "random", **OFF},
    "no-place": {"position_code": False, **OFF},
    "turned": {"etf_seed": 3, **OFF},
    "linear-rows": {"classifier": "random", "train_classifier": True, **OFF},
}


def test_every_row_of_the_ablations_trains_a_model_of_its_own() -> None:
    federation = make_federation(annotated=((0, 1), (1, 2)), rounds=1)
    images = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    seen: dict[tuple[float, ...], str] = {}
    for row, settings in ABLATION.items():
        method = make_method("fednca-ml", **settings)
        fitted = federation.fitted(method)
        weights = fitted.train(method)["weights"]
        network = fitted.task.build_network().eval()
        logits = torch.func.functional_call(network, weights, (images,)).logits.flatten()
        assert bool(logits.isfinite().all()), row
        twin = seen.setdefault(tuple(logits.tolist()), row)
        assert twin == row


def test_head_settings_are_those_that_the_head_has() -> None:
    wanted = ModelSpec(backbone="small-resnet")
    spec = FedNCAML(etf_seed=2).model_spec(wanted)
    assert (spec.backbone, spec.head) == ("small-resnet", "ladm")
    assert spec.head_settings == {
        "query": "etf",
        "train_query": False,
        "classifier": "etf",
        "train_classifier": False,
        "etf_seed": 2,
        "position_code": True,
        "bias": False,
    }
    pooled = FedNCAML(head="etf", scale=10.0, **OFF).model_spec(wanted)
    assert pooled.head_settings == {"train_classifier": False, "scale": 10.0, "bias": False}
    assert FedNCAML(head="linear", **OFF).model_spec(wanted).head_settings == {}


def test_training_is_the_papers() -> None:
    training = FedNCAML().training
    assert (training.optimizer, training.decay, training.weight_decay) == (
        "adam",
        "decoupled",
        0.01,
    )
    assert (training.lr, training.betas) == (1e-4, (0.9, 0.98))
    assert (training.batch_size, training.epochs, training.schedule) == (32, 1, "constant")


def test_the_released_variant_can_be_named_in_a_recipe() -> None:
    settings = tiny_settings("fednca-ml")
    settings["method"]["variant"] = "released"
    method = recipe_from(settings).method
    assert isinstance(method, FedNCAML)
    assert (method.train_query, method.train_classifier, method.position_code) == (
        True,
        True,
        False,
    )
    assert (method.scale, method.bias, method.class_reduction) == (10.0, True, "sum")
    assert (method.rejection_form, method.compaction_form) == ("hinge-top", "cosine")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"head": "etf"}, "only the head 'ladm' has, found 'etf'; set both to 0"),
        ({"head": "linear", "rejection": 0.0}, "found 'linear'"),
        ({"temperature": 0.0}, "needs temperature > 0"),
        ({"rejection": -1.0}, "0 or more"),
    ],
)
def test_what_cannot_be_is_explained(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        FedNCAML(**settings)  # type: ignore[arg-type]


def test_one_class_is_refused_and_so_are_more_classes_than_features() -> None:
    spec = FedNCAML().model_spec(ModelSpec())
    for class_count, message in ((1, "at least two classes"), (65, "and 65 classes")):
        with pytest.raises(UserError, match=message):
            spec.build(channels=1, class_count=class_count, seed=0)


@pytest.mark.parametrize("query", ["etf", "random"])
def test_a_run_that_is_read_back_predicts_and_shows_where_it_looks(
    tmp_path: Path, query: str
) -> None:
    settings = tiny_settings("fednca-ml")
    settings["method"] |= {"query": query, "etf_seed": 4}
    train(recipe_from(settings), tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.models.card["model"]["head"] == "ladm"
    images = torch.randint(0, 256, (3, *run.models.image_shape), dtype=torch.uint8)
    assert run.predict(images).probabilities.shape == (3, 3)
    maps = run.models.attention(images, None)
    assert maps.shape == (3, 3, 8, 8)
    assert torch.allclose(maps.sum((2, 3)), torch.ones(3, 3), atol=1e-5)
