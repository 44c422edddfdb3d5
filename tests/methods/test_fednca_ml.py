"""FedNCA-ML: its losses on the toy of the method card, its fixed frame, its components."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import Federation, make_federation, make_method
from support.tiny_runs import tiny_settings
from torch import Tensor, nn, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import same_bits
from fedquilt.data.client_data import ClientData
from fedquilt.methods.fednca_ml import FedNCAML
from fedquilt.models.heads.layers.class_directions import ClassDirections
from fedquilt.models.heads.layers.class_vectors import ClassVectors
from fedquilt.models.heads.layers.etf import simplex_etf
from fedquilt.models.network import Output, read_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs.experiment import run as train
from fedquilt.runs.finished_run import read_run
from fedquilt.training.averaging import weight_parts
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.rounds import start_server

OFF = {"rejection": 0.0, "compaction": 0.0}
# C = d = 3: features e1, 2 e2 and -e3, of which only class 0 is present
FOUND = tensor([[[1.0, 0, 0], [0, 2, 0], [0, 0, -1]]], dtype=torch.float64)
LABELS = tensor([[1.0, 0.0, 0.0]])
KNOWN = torch.ones(1, 3, dtype=torch.bool)
BCE, NEG, POS = 0.847819, 0.641988, 0.462265
HINGE, COSINE = 0.837247, 5.04e-8


class GivenFeatures(nn.Module):
    """A network whose features per class are given, (B, C, d)."""

    def __init__(self, found: Tensor, scale: float | None = None) -> None:
        super().__init__()
        self.head = nn.Module()
        shape = (found.shape[1], found.shape[2])
        self.head.classifier = ClassDirections(ClassVectors(), shape, 0, scale=scale).double()
        self.found = found

    def forward(self, images: Tensor) -> Output:
        logits = self.head.classifier.own_scores(self.found)
        return Output(self.found.mean(1), logits, self.found)


def _loss(
    method: FedNCAML,
    labels: Tensor = LABELS,
    known: Tensor = KNOWN,
    found: Tensor = FOUND,
    scale: float | None = None,
) -> float:
    local = client_of(method, holding(labels, known), torch.zeros(1, 3))
    local.model = GivenFeatures(found, scale)  # type: ignore[assignment]
    return method.loss(local, batch_of(labels, known)).item()


def _share(part: str, labels: Tensor = LABELS, found: Tensor = FOUND, **settings: object) -> float:
    """One regulariser of the toy at strength 1."""
    method = FedNCAML(**{**OFF, part: 1.0, **settings})  # type: ignore[arg-type]
    known = torch.ones_like(labels, dtype=torch.bool)
    whole, plain = (_loss(each, labels, known, found) for each in (method, FedNCAML(**OFF)))
    return whole - plain


def test_the_toy_in_the_papers_form() -> None:
    assert _loss(FedNCAML(**OFF)) == pytest.approx(BCE, abs=1e-6)
    assert _share("rejection") == pytest.approx(NEG, abs=1e-6)
    assert _share("compaction") == pytest.approx(POS, abs=1e-6)
    whole = _loss(FedNCAML(rejection=0.01, compaction=1.0))
    assert whole == pytest.approx(BCE + 0.01 * NEG + POS, abs=1e-6)


def test_the_toy_in_the_authors_form() -> None:
    assert _share("rejection", rejection_form="hinge") == pytest.approx(HINGE, abs=1e-6)
    # One positive: only the likeliest negative, class 1, 0.83658 - 0.3
    assert _share("rejection", rejection_form="hinge-top") == pytest.approx(0.53658, abs=1e-5)
    assert _share("compaction", compaction_form="cosine") == pytest.approx(COSINE, rel=1e-3)
    summed = _loss(FedNCAML(class_reduction="sum", **OFF))
    assert summed == pytest.approx(3 * BCE, abs=3e-6)


def test_several_positives_are_averaged_by_the_paper_and_summed_by_the_authors() -> None:
    labels = tensor([[1.0, 1.0, 0.0]])
    # The second feature is twice as long: its softmax is steeper, its cosines are the first's.
    gap = -math.sqrt(3 / 2)  # of a class's own score, 0.816497, to the others', -0.408248
    first, second = (math.log1p(2 * math.exp(length * gap)) for length in (1, 2))
    assert first == pytest.approx(POS, abs=1e-6)
    assert _share("compaction", labels) == pytest.approx((first + second) / 2, abs=1e-6)
    cosine = _share("compaction", labels, compaction_form="cosine")
    assert cosine == pytest.approx(2 * COSINE, rel=1e-3)


def test_as_many_negatives_are_rejected_as_the_batch_has_positives() -> None:
    # Two positives in the first image, none in the second: of its three negatives and the first
    # image's one, those at 0.83658 and 0.69349. A sum per image, a mean over two images.
    labels = tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    twice = FOUND.repeat(2, 1, 1)
    top = _share("rejection", labels, twice, rejection_form="hinge-top")
    assert top == pytest.approx((0.53658 + 0.39349) / 2, abs=1e-5)


def test_strengths_of_the_card() -> None:
    method = FedNCAML()
    assert (method.rejection, method.compaction, method.rejection_threshold) == (0.01, 1.0, 0.3)
    assert method.temperature == 0.07


def test_scale_is_part_of_the_scores() -> None:
    # softplus of -10 a, 20 a and -10 a, with a = 0.816497, for the logits 10 a, 20 a, -10 a
    scores = 10 * FOUND @ simplex_etf(3, 3).double().T
    expected = nn.functional.binary_cross_entropy_with_logits(
        scores.diagonal(dim1=1, dim2=2), LABELS.double()
    )
    assert _loss(FedNCAML(**OFF), scale=10.0) == pytest.approx(expected.item(), abs=1e-6)
    cosines = FedNCAML(rejection=0.0, compaction_form="cosine")
    assert _loss(cosines, scale=10.0) == pytest.approx(expected.item(), abs=1e-6)


def test_unannotated_entries_are_in_none_of_the_losses() -> None:
    known = tensor([[True, True, False]])
    method = FedNCAML(rejection=1.0, compaction=1.0)
    # Left: class 0 present, -log 0.69349; class 1 absent, -log(1 - 0.83658), which is rejected by
    # the two others with -log(1 - 0.30651) each. With a = sqrt(2/3) these are softplus of:
    a = math.sqrt(2 / 3)
    present, absent, rejected = (math.log1p(math.exp(z)) for z in (-a, 2 * a, -a))
    expected = (present + absent) / 2 + rejected + POS
    assert _loss(method, known=known) == pytest.approx(expected, abs=2e-6)
    for garbage in (1.0, 255.0):
        hidden = torch.where(known, LABELS, tensor(garbage))
        assert _loss(method, labels=hidden, known=known) == _loss(method, known=known)


def test_images_without_positives_or_negatives() -> None:
    absent, present = torch.zeros(1, 3), torch.ones(1, 3)
    compact, reject = FedNCAML(rejection=0.0), FedNCAML(compaction=0.0, rejection=1.0)
    plain = FedNCAML(**OFF)
    assert _loss(compact, labels=absent) == _loss(plain, labels=absent)
    assert _loss(reject, labels=present) == _loss(plain, labels=present)
    top = replace(reject, rejection_form="hinge-top")  # no positive: no negative is chosen
    assert _loss(top, labels=absent) == _loss(plain, labels=absent)
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    assert _loss(FedNCAML(), known=nothing) == 0.0


def test_a_threshold_of_one_is_no_rejection() -> None:
    assert _share("rejection", rejection_threshold=1.0) == 0.0


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
