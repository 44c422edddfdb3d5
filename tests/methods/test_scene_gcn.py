"""Scene-GCN: the network is shared; scenes are each client's own, and enriched by the server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.logit_client import client_of
from support.tiny_federation import Federation, make_federation, make_method
from support.tiny_runs import predictions_of_two_clients
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import addressed
from fedquilt.core.tree import Weights, same_bits
from fedquilt.data.batches import Batch
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.losses.cross_entropy import asymmetric_loss
from fedquilt.losses.scene_entropy import scene_entropy
from fedquilt.methods.scene_gcn import SceneGCN
from fedquilt.models.scenes import CENTRES, COUNTS, MATRICES, SCENES
from fedquilt.privacy.sent_parts import sent_parts
from fedquilt.training.client import Workspace, open_round
from fedquilt.training.method import Method, State
from fedquilt.training.rounds import run_rounds, start_server

TWO = ((0, 1, 2), (0, 1))


def trained(
    federation: Federation, method: Method, **settings: int
) -> tuple[State, StatesInMemory]:
    """The server's state and the clients' after all rounds."""
    states = StatesInMemory()
    federation = federation.fitted(method)
    engine = federation.engine(states)
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server, **settings):
        server = round_.server
    return server, states


def scenes_of(states: StatesInMemory, client: str) -> Weights:
    scenes: Weights = states.get(client)["method"]["scenes"]
    return scenes


def test_scene_summaries_cannot_be_summed_securely() -> None:
    parts = {part.name: part for part in sent_parts("scene-gcn")}
    assert list(parts) == ["body", "head", "buffers", "scenes", "training_loss"]
    # 6 scenes, 64 features, 5 classes
    assert parts["scenes"].tensors == {
        "prototypes": (6, 64),
        "matrices": (6, 5, 5),
        "used": (6,),
    }
    assert not parts["scenes"].can_be_summed_securely
    assert list(parts["buffers"].tensors) == ["head.labels"]  # no scene is averaged


def test_scenes_count_every_image_once_a_pass() -> None:
    federation = make_federation(annotated=TWO, rounds=3)
    _, states = trained(federation, make_method("scene-gcn", scene_count=3))
    for client in ("site-0", "site-1"):
        assert scenes_of(states, client)[COUNTS].sum().item() == 3 * 21


def test_before_mixing_matrices_are_symmetric_counts_of_the_client_s_labels() -> None:
    federation = make_federation(annotated=TWO, rounds=1)
    _, states = trained(federation, make_method("scene-gcn"))
    for client, data in federation.clients.items():
        matrices = scenes_of(states, client)[MATRICES]
        assert torch.equal(matrices, matrices.transpose(1, 2))
        present = (data.known & (data.labels == 1)).float()
        assert torch.equal(matrices.sum(0), present.T @ present)
    assert not scenes_of(states, "site-1")[MATRICES][:, 2].any()  # it does not annotate class 2


def report(value: float, angle: float = 0.0, used: float = 1.0) -> Weights:
    turn = tensor(angle)
    return {
        "prototypes": torch.stack([turn.cos(), turn.sin()])[None],
        "matrices": value * torch.ones(1, 2, 2),
        "used": tensor([used]),
    }


def test_each_client_gets_its_own_matrices_mixed_by_similarity() -> None:
    method = SceneGCN(scene_count=1)
    # cos = 0.5: (1 + 0.5 * 4) / 1.5 = 2 and (4 + 0.5 * 1) / 1.5 = 3
    scenes = {"a": report(1.0), "ward %2F b": report(4.0, torch.pi / 3)}
    payload = method.broadcast({"weights": {}, "scenes": scenes})
    for client, value in (("a", 2.0), ("ward / b", 3.0)):  # a state's names have no slash
        mixed = addressed(payload, client)["mixed"]["matrices"]
        torch.testing.assert_close(mixed, value * torch.ones(1, 2, 2))
    assert addressed(payload, "newcomer")["mixed"] == {}


@pytest.mark.parametrize(("matrices", "expected"), [("shares", 8.0), ("counts", 2.0)])
def test_counting_goes_on_from_the_mixed_matrices(matrices: str, expected: float) -> None:
    """What is sent per image comes back per image, and is counted on for the scene's 4 images."""
    method = SceneGCN(scene_count=1, matrices=matrices)
    own = {
        CENTRES: tensor([[1.0]]),
        MATRICES: 5 * torch.ones(1, 2, 2),
        COUNTS: tensor([4.0]),
    }
    received = {"weights": {}, "mixed": {"matrices": 2 * torch.ones(1, 2, 2)}}
    found = method.client_weights(received, {"scenes": own})
    assert torch.equal(found[MATRICES], expected * torch.ones(1, 2, 2))
    assert torch.equal(found[CENTRES], own[CENTRES])
    unmixed = method.client_weights({"weights": {}, "mixed": {}}, {"scenes": own})
    assert unmixed == own


@pytest.mark.parametrize(("variant", "per_image"), [({}, True), ({"matrices": "counts"}, False)])
def test_what_a_client_sends(variant: dict[str, str], per_image: bool) -> None:
    assert variant.items() <= SceneGCN.variants["released"].items()
    federation = make_federation(annotated=TWO, rounds=1)
    server, states = trained(federation, make_method("scene-gcn", **variant))
    for client in federation.clients:
        own, sent = scenes_of(states, client), server["scenes"][client]
        assert torch.equal(sent["prototypes"], own[CENTRES])
        images = own[COUNTS].clamp(min=1)[:, None, None] if per_image else 1.0
        assert torch.equal(sent["matrices"], own[MATRICES] / images)
        assert torch.equal(sent["used"], (own[COUNTS] > 0).float())


def test_a_client_alone_keeps_what_it_counted() -> None:
    federation = make_federation(annotated=((0, 1, 2),), rounds=4)
    method = make_method("scene-gcn")
    server, states = trained(federation, method)
    received = addressed(method.broadcast(server), "site-0")
    model = method.client_weights(received, states.get("site-0")["method"])
    own = scenes_of(states, "site-0")
    torch.testing.assert_close(model[MATRICES], own[MATRICES])
    present = federation.clients["site-0"].labels.float()
    torch.testing.assert_close(own[MATRICES].sum(0), 4 * present.T @ present, rtol=1e-4, atol=1e-3)


def test_other_clients_reach_a_client_s_matrices() -> None:
    federation = make_federation(annotated=TWO, rounds=1)
    method = make_method("scene-gcn")
    server, states = trained(federation, method)
    received = addressed(method.broadcast(server), "site-1")
    model = method.client_weights(received, states.get("site-1")["method"])
    assert not scenes_of(states, "site-1")[MATRICES][:, 2].any()
    assert model[MATRICES][:, 2].any()  # site-0 knows about class 2


def test_a_newcomer_starts_with_scenes_at_its_own_images() -> None:
    federation = make_federation(annotated=TWO, rounds=2)
    method = replace(make_method("scene-gcn"), scene_count=3)
    federation = federation.fitted(method)
    server, _ = trained(federation, method)
    workspace = Workspace.of(federation.task, torch.device("cpu"))
    received = addressed(method.broadcast(server), "site-9")
    data = federation.clients["site-1"]
    local = open_round(method, federation.task, workspace, data, received, {}, 2)
    started = method.initial_weights(local)
    features = local.predict(started, "plain").features
    for centre in started[CENTRES]:
        assert bool((features == centre).all(1).any())
    assert len(started[CENTRES].unique(dim=0)) == 3
    assert not started[MATRICES].any()
    assert not started[COUNTS].any()


def test_the_server_remembers_clients_that_sit_out() -> None:
    federation = make_federation(annotated=((0,), (1,), (2,)), rounds=4)
    server, states = trained(federation, make_method("scene-gcn"), cohort_size=1)
    heard = [name for name in federation.clients if states.get(name)]
    assert sorted(server["scenes"]) == sorted(heard)
    assert len(heard) > 1


def test_the_network_is_shared_and_scenes_are_not() -> None:
    federation = make_federation(annotated=TWO)
    method = make_method("scene-gcn")
    server, states = trained(federation, method)
    assert method.global_weights(server) is None
    assert not any(name in server["weights"] for name in SCENES)
    payload = method.broadcast(server)
    one, two = (
        method.client_weights(addressed(payload, name), states.get(name)["method"])
        for name in ("site-0", "site-1")
    )
    shared = {name: value for name, value in one.items() if name not in SCENES}
    assert same_bits(shared, {name: two[name] for name in shared})
    assert all(not torch.equal(one[name], two[name]) for name in (CENTRES, MATRICES))


def _statistics_after_a_round(method: Method) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The server's variance, and the clients' means and variances, of a first batch norm."""
    federation = make_federation(annotated=TWO, rounds=1, backbone="small-resnet").fitted(method)
    engine = federation.engine()
    server = start_server(method, federation.task, engine)
    payload = method.broadcast(server)
    everybody = method.update(server, engine.exchange(method, payload, 0, ["site-0", "site-1"]))
    means, variances = [], []
    for client in ("site-0", "site-1"):
        alone = federation.engine().exchange(method, payload, 0, [client])
        weights = method.update(server, alone)["weights"]
        means.append(weights["backbone.bn1.running_mean"])
        variances.append(weights["backbone.bn1.running_var"])
    return everybody["weights"]["backbone.bn1.running_var"], means, variances


def test_variances_by_the_law_of_total_variance() -> None:
    # Two clients of 21 images each: v = mean of (v_k + m_k^2) - (mean of m_k)^2.
    found, means, variances = _statistics_after_a_round(make_method("scene-gcn"))
    mean = (means[0] + means[1]) / 2
    inside = (variances[0] + variances[1]) / 2
    between = (means[0].square() + means[1].square()) / 2 - mean.square()
    torch.testing.assert_close(found, inside + between)
    assert bool((between > 1e-7).any())
    plain, _, variances = _statistics_after_a_round(make_method("scene-gcn", pooled_variance=False))
    torch.testing.assert_close(plain, (variances[0] + variances[1]) / 2)


def test_linear_scenes_are_averaged_and_their_rows_are_the_prototypes() -> None:
    federation = make_federation(annotated=TWO, rounds=2)
    method = make_method("scene-gcn", scenes="linear")
    server, states = trained(federation, method)
    sent = [server["scenes"][client]["prototypes"] for client in ("site-0", "site-1")]
    assert not torch.equal(sent[0], sent[1])
    # Equally many images: the mean of what both sent is what everybody goes on with.
    expected = (sent[0] + sent[1]) / 2
    torch.testing.assert_close(server["weights"]["head.scores.weight"], expected)
    assert CENTRES not in scenes_of(states, "site-0")


@pytest.mark.parametrize("scenes", ["k-means", "linear"])
def test_the_loss_of_a_batch(scenes: str) -> None:
    method = make_method("scene-gcn", scenes=scenes, entropy_weight=3.0, margin=0.1)
    federation = make_federation(annotated=TWO).fitted(method)
    network = federation.task.build_network()
    images, known = torch.rand(4, 1, 8, 8), tensor([[True, False, True]]).expand(4, 3)
    labels = tensor([[1.0, 7.0, 0.0]]).expand(4, 3)

    local = client_of(method, federation.clients["site-0"])
    local.model = network
    found = method.loss(local, Batch((images,), labels, known, torch.arange(4)))
    output = network.eval()(images)  # counted by now, as the training pass had it
    expected = asymmetric_loss(output.logits, labels, known, None, (4.0, 1.0), 0.1)
    if scenes == "linear":
        expected = expected + 3 * scene_entropy(output.features @ network.head.scores.weight.T)
    torch.testing.assert_close(found, expected)
    assert network.head.counts.sum().item() == 4
    assert not network.head.matrices[:, 1].any()


def test_a_finished_run_has_a_model_per_client(tmp_path: Path) -> None:
    one, two = predictions_of_two_clients(tmp_path, "scene-gcn", width=16)
    assert one.shape == (3, 3)
    assert bool(one.isfinite().all())
    assert bool(two.isfinite().all())


def test_numbers_of_the_card() -> None:
    method = SceneGCN()
    assert (method.scenes, method.scene_count, method.width) == ("k-means", 6, 1024)
    assert (method.negative_focus, method.positive_focus, method.margin) == (4.0, 1.0, 0.05)
    assert method.entropy_weight == 1.0


def test_a_focus_between_0_and_1_is_refused() -> None:
    with pytest.raises(UserError, match=r"must be 0 or at least 1, found 0.5 and 1.0"):
        SceneGCN(negative_focus=0.5)
