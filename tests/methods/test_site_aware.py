"""Site-aware CNN-GNN: shared branches, a private graph, and a round of two stages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.logit_client import batch_of, client_of, holding
from support.tiny_federation import Federation, make_federation, make_method
from support.tiny_runs import predictions_of_two_clients
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean
from fedquilt.core.totals import Accumulator
from fedquilt.core.tree import Weights, flatten, leaves, same_bits
from fedquilt.engines.client_states import StatesInMemory
from fedquilt.methods.site_aware import SiteAware
from fedquilt.models.heads.layers.edge_graph import edge_rates
from fedquilt.models.network import read_weights
from fedquilt.privacy.sent_parts import sent_parts
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import Method, Stage, State
from fedquilt.training.rounds import run_rounds, start_server

TWO = ((0, 1, 2), (0, 1))
CPU = torch.device("cpu")


def trained(
    federation: Federation, method: Method, states: StatesInMemory | None = None
) -> tuple[State, dict[str, Weights]]:
    """The server's state, and every site's own model."""
    federation = federation.fitted(method)
    engine = federation.engine(states)
    server = start_server(method, federation.task, engine)
    for round_ in run_rounds(method, federation.task, engine, server):
        server = round_.server
    return server, dict(engine.personal_weights(method, method.broadcast(server)))


def graph_of(weights: Weights) -> Weights:
    return {name: value for name, value in weights.items() if name.startswith("head.graph.")}


def test_no_graph_and_no_edges_leave_a_site() -> None:
    parts = sent_parts("site-aware")
    names = [name for part in parts for name in part.tensors]
    assert [part.name for part in parts] == ["body", "head", "buffers", "training_loss"]
    assert any(name.startswith("head.branches.") for name in names)
    assert not any("graph" in name or "edges" in name for name in names)
    assert all(part.can_be_summed_securely for part in parts)


def test_the_server_broadcasts_no_graph_but_the_first() -> None:
    federation = make_federation(annotated=TWO)
    method = make_method("site-aware")
    server, _ = trained(federation, method)
    message = method.broadcast(server)
    assert message.keys() == {"weights", "first_graph"}
    assert not any("graph" in name or "edges" in name for name in message["weights"])
    network = federation.fitted(method).task.build_network()
    assert same_bits(message["first_graph"], graph_of(read_weights(network)))


def test_sites_share_the_network_and_differ_in_the_graph() -> None:
    federation = make_federation(annotated=TWO)
    method = make_method("site-aware")
    server, models = trained(federation, method)
    assert method.global_weights(server) is None
    one, two = models["site-0"], models["site-1"]
    private = {*graph_of(one), "head.edges"}
    shared = [name for name in one if name not in private]
    assert same_bits({name: one[name] for name in shared}, {name: two[name] for name in shared})
    assert not torch.equal(
        one["head.graph.first.convolution.edge.weight"],
        two["head.graph.first.convolution.edge.weight"],
    )
    for name, data in federation.clients.items():
        assert torch.equal(models[name]["head.edges"], edge_rates(data.labels, data.known))


def test_two_stages_each_with_an_optimiser_of_its_own() -> None:
    resting = ("backbone.",)
    assert SiteAware().stages(0) == (Stage(name="branches", frozen=resting), Stage())
    released = make_method("site-aware", variant="released")
    assert isinstance(released, SiteAware)
    assert [stage.steps for stage in released.stages(3)] == [1500, 3000]
    assert SiteAware(branch_steps=0).stages(0) == (Stage(),)
    only = SiteAware(branch_steps=7, joint_steps=0).stages(0)
    assert only == (Stage(name="branches", steps=7, frozen=resting),)


@pytest.mark.parametrize("settings", [{"branch_steps": 0, "joint_steps": 0}, {"joint_steps": -1}])
def test_steps_that_cannot_be(settings: dict[str, int]) -> None:
    with pytest.raises(UserError, match="must be 0 or more, or left out, and not both 0"):
        SiteAware(**settings)


def test_the_first_stage_leaves_the_backbone_s_parameters_alone() -> None:
    federation = make_federation(annotated=TWO, rounds=1, backbone="small-resnet")
    method = make_method("site-aware", joint_steps=0)
    method = replace(method, training=replace(method.training, weight_decay=0.1))
    server, models = trained(federation, method)
    network = federation.fitted(method).task.build_network()
    for name, parameter in network.backbone.named_parameters():
        assert torch.equal(server["weights"][f"backbone.{name}"], parameter), name
    statistics = server["weights"]["backbone.bn1.running_mean"]
    assert not torch.equal(statistics, network.backbone.bn1.running_mean)  # these do move
    branch = "head.branches.first.weight"
    assert not torch.equal(server["weights"][branch], network.head.branches.first.weight)
    graph = "head.graph.output.root.weight"
    assert not torch.equal(models["site-0"][graph], server["first_graph"][graph])


def test_the_second_stage_trains_everything() -> None:
    federation = make_federation(annotated=TWO, rounds=1)
    method = make_method("site-aware", branch_steps=0, joint_steps=2)
    server, _ = trained(federation, method)
    first = federation.fitted(method).task.build_network().backbone.conv1.weight
    assert not torch.equal(server["weights"]["backbone.conv1.weight"], first)


def test_a_site_that_joins_late_starts_with_the_first_graph_and_its_own_edges() -> None:
    method = make_method("site-aware", branch_steps=2, joint_steps=0)
    federation = make_federation(annotated=TWO, rounds=2)
    newcomer = make_federation(annotated=(*TWO, (1, 2))).clients["site-2"]
    server, _ = trained(federation, method)
    received = method.broadcast(server)
    before = method.client_weights(received, method.init_client(newcomer))
    assert same_bits(graph_of(before), server["first_graph"])
    assert torch.equal(before["head.edges"], edge_rates(newcomer.labels, newcomer.known))
    task = federation.fitted(method).task
    update, kept = run_client(method, task, Workspace.of(task, CPU), newcomer, received, {}, 2)
    own = kept["method"]["graph"]
    output = "head.graph.output.edge.weight"
    assert not torch.equal(own[output], server["first_graph"][output])
    backbone = [v for name, v in leaves(update["body"].value) if name.startswith("backbone.")]
    assert backbone
    assert not any(value.any() for value in backbone)  # of the first stage only: it rested


def test_a_finished_federation_goes_on_with_one_more_site() -> None:
    """Two sites for two rounds; then a third is added to them, for two rounds more."""
    method, states = make_method("site-aware"), StatesInMemory()
    server, before = trained(make_federation(annotated=TWO, rounds=2), method, states)
    grown = make_federation(annotated=(*TWO, (1, 2)), rounds=4).fitted(method)
    engine = grown.engine(states)
    for round_ in run_rounds(method, grown.task, engine, server, first_round=2):
        assert round_.cohort == ("site-0", "site-1", "site-2")
    models = dict(engine.personal_weights(method, method.broadcast(round_.server)))
    assert models.keys() == grown.clients.keys()  # each is evaluated for itself
    graphs = [graph_of(models[name]) for name in models] + [server["first_graph"]]
    output = "head.graph.output.edge.weight"
    assert len({tuple(graph[output].flatten().tolist()) for graph in graphs}) == 4
    newcomer = grown.clients["site-2"]
    assert torch.equal(models["site-2"]["head.edges"], edge_rates(newcomer.labels, newcomer.known))
    shared = "head.branches.first.weight"
    assert torch.equal(models["site-2"][shared], models["site-0"][shared])
    assert not torch.equal(models["site-0"][shared], before["site-0"][shared])


def test_a_site_goes_on_with_its_own_graph() -> None:
    states = StatesInMemory()
    federation = make_federation(annotated=TWO, rounds=1)
    method = make_method("site-aware")
    server, models = trained(federation, method, states)
    kept = states.get("site-1")["method"]
    assert same_bits(kept["graph"], graph_of(models["site-1"]))
    goes_on = method.client_weights(method.broadcast(server), kept)
    assert same_bits(graph_of(goes_on), kept["graph"])


def test_shares_of_the_five_sites_of_the_paper() -> None:
    # Mini-batches of 16 per site; 1997 / 10220 = 0.1954 and so on, which sum to 1.
    batches = (1997, 2030, 2093, 1978, 2122)
    totals = Accumulator({"body": Mean({"w": torch.zeros(5)}, 0.0)}, 5)
    for site, weight in enumerate(batches):
        totals.add(f"site-{site}", {"body": Mean({"w": torch.eye(5)[site]}, float(weight))})
    shares = totals.totals().mean("body")["w"]
    assert shares.tolist() == pytest.approx([0.1954, 0.1986, 0.2048, 0.1935, 0.2076], abs=6e-5)
    assert shares.sum().item() == pytest.approx(1.0)


def test_the_weighted_loss_by_hand() -> None:
    # Class 0: 1 of 4 present, weights 4 / 2 and 4 / 6; class 1: none present, 4 / 8 for absent;
    # class 2: not annotated. All logits 0, ln 2 each: (2 + 3 * 2/3 + 4 * 1/2) / 8 = 0.75 ln 2.
    labels = tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    known = tensor([[True, True, False]]).expand(4, 3)
    local = client_of(SiteAware(), holding(labels, known), torch.zeros(4, 3))
    loss = SiteAware().loss(local, batch_of(labels, known))
    assert loss.item() == pytest.approx(0.75 * 0.693147, rel=1e-5)
    capped = SiteAware(weight_cap=1.0)  # (1 + 3 * 2/3 + 4 * 1/2) / 8
    local = client_of(capped, holding(labels, known), torch.zeros(4, 3))
    assert capped.loss(local, batch_of(labels, known)).item() == pytest.approx(0.625 * 0.693147)


@pytest.mark.parametrize(("images", "batch_size"), [(1, 8), (5, 1)])
def test_batches_of_one_image_are_refused(images: int, batch_size: int) -> None:
    data = make_federation(images_each=images).clients["site-0"]
    method = make_method("site-aware")
    method = replace(method, training=replace(method.training, batch_size=batch_size))
    with pytest.raises(
        UserError, match=f"at least 2 images in a batch for batch norm, found {images} at"
    ):
        method.init_client(data)


def test_without_graph_balance_and_first_stage_it_is_fedavg_pl_bit_for_bit() -> None:
    federation = make_federation(annotated=TWO, backbone="small-resnet")
    weight = {"positive_weight": "inverse-prevalence"}
    method = make_method("site-aware", graph=False, balanced=False, branch_steps=0, **weight)
    plain = federation.fitted(method).train(make_method("fedavg-pl"))
    server, _ = trained(federation, method)
    assert same_bits(server, plain)
    assert method.global_weights(server) is server["weights"]
    balanced, _ = trained(federation, replace(method, balanced=True))
    assert not same_bits(balanced, plain)


def test_released_follows_the_public_code() -> None:
    federation = make_federation(annotated=TWO, rounds=1)
    steps = {"branch_steps": 1, "joint_steps": 1}
    method = make_method("site-aware", variant="released", **steps)
    assert method.model_spec(federation.task.model).colour_stem
    data = federation.clients["site-1"]
    state = method.init_client(data)
    assert torch.equal(state["edges"], edge_rates(data.labels, data.known, of_images=True))
    assert not torch.equal(state["edges"], edge_rates(data.labels, data.known))
    assert bool((state["balance"] == state["balance"][:, :1]).all())
    assert float(state["balance"].min()) > 100
    _, models = trained(federation, method)
    assert "backbone.colour.0.weight" in models["site-0"]


def test_a_shared_graph_is_averaged_and_edges_stay_private() -> None:
    states = StatesInMemory()
    federation = make_federation(annotated=TWO)
    method = make_method("site-aware", share_graph=True)
    server, models = trained(federation, method, states)
    assert method.global_weights(server) is None
    assert same_bits(graph_of(models["site-0"]), graph_of(models["site-1"]))
    assert not torch.equal(models["site-0"]["head.edges"], models["site-1"]["head.edges"])
    assert not any("edges" in path for path in flatten(method.broadcast(server)))
    assert "graph" not in states.get("site-0")["method"]


def test_a_finished_run_has_a_model_per_client(tmp_path: Path) -> None:
    one, two = predictions_of_two_clients(tmp_path, "site-aware", width=16)
    assert one.shape == (3, 3)
    assert not torch.equal(one, two)
