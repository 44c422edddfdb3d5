"""Site-aware CNN-GNN (Chakravarty et al., ISBI 2021): a private label graph for every site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Update
from fedquilt.core.settings import added
from fedquilt.core.totals import Totals
from fedquilt.core.tree import Weights
from fedquilt.data.batches import Batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.class_prior import PositiveWeight
from fedquilt.losses.cross_entropy import balance_weights, balanced_bce
from fedquilt.models.heads.layers.edge_graph import edge_rates
from fedquilt.models.private_weights import private_weights, shared_weights
from fedquilt.models.spec import ModelSpec
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Local, Stage, State
from fedquilt.training.task import Task

GRAPH, EDGES = "head.graph.", "head.edges"


@dataclass(frozen=True, kw_only=True)
class SiteAware(WeightedAveraging):
    """Share the network up to one feature per class; keep the graph network over classes private.

    Its edges are the rates at which two labels occur together at the site. A round first trains the
    branches and the graph with the backbone frozen, then everything. The method was made for sites
    that annotate all classes: a private graph's output for any other class is not trained.

    Deviations: edges compare labels over annotated images, class weights apply to their own
    classes, and grey images enter a one-channel backbone. In ``released``, the public code, edges
    compare a site's first images, every class has the mean weight, and a trained convolution makes
    grey images three channels; its choice of the reported round is not followed.
    """

    positive_weight: PositiveWeight = "none"  # replaced by the balance of the classes
    balanced: bool = True  # positives and negatives of a class have the same total weight
    weight_cap: float = 100.0  # the largest weight of a label
    width: int = 512  # of the class features and the graph network
    graph: bool = True  # False: a linear output per class instead, and one global model
    share_graph: bool = False  # also average the graph network; edges stay private
    branch_steps: int | None = None  # with the backbone frozen; left out: as in training, 0: none
    joint_steps: int | None = None  # of all weights, after that; left out: as in training, 0: none
    edges_of_images: bool = added(False)  # edges compare images, as in the public code
    mean_weights: bool = added(False)  # every class has the mean weight, and none is capped
    colour_stem: bool = added(False)  # grey images pass a trained convolution to three channels

    variants: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "released": {
            "training": {"batch_size": 16, "lr": 1e-5, "weight_decay": 1e-5},
            "branch_steps": 1500,
            "joint_steps": 3000,
            "edges_of_images": True,
            "mean_weights": True,
            "colour_stem": True,
        }
    }
    also_broadcast: ClassVar[tuple[str, ...]] = ("first_graph",)  # of a site in its first round

    def __post_init__(self) -> None:
        steps = (self.branch_steps, self.joint_steps)
        if steps == (0, 0) or any(each is not None and each < 0 for each in steps):
            raise UserError(
                "method.branch_steps and method.joint_steps must be 0 or more, or left out, and "
                f"not both 0; found {steps[0]} and {steps[1]}"
            )
        if not self.weight_cap > 0:
            raise UserError(f"method.weight_cap must be positive, found {self.weight_cap}")

    @property
    def private(self) -> tuple[str, ...]:
        graph = (GRAPH,) if self.graph and not self.share_graph else ()
        return graph + ((EDGES,) if self.graph else ())

    def stages(self, round_index: int) -> tuple[Stage, ...]:
        first = Stage(name="branches", steps=self.branch_steps, frozen=("backbone.",))
        return tuple(stage for stage in (first, Stage(steps=self.joint_steps)) if stage.steps != 0)

    def model_spec(self, wanted: ModelSpec) -> ModelSpec:
        settings = {"width": self.width, "graph": self.graph}
        stem = self.colour_stem or wanted.colour_stem
        return replace(wanted, head="site-aware", head_settings=settings, colour_stem=stem)

    def init_server(self, weights: Weights, task: Task, survey: Totals) -> State:
        return super().init_server(weights, task, survey) | self._graph("first_graph", weights)

    def _graph(self, key: str, weights: Weights) -> State:
        """The private graph network, without the edges, which are computed from labels."""
        graph = shared_weights(private_weights(weights, self.private), (EDGES,))
        return {key: graph} if graph else {}

    def init_client(self, data: ClientData) -> State:
        data.require_two_in_a_batch(self.training.batch_size)
        counts, of_images = (data.positive_counts(), data.annotated_counts()), self.edges_of_images
        balance = balance_weights(*counts, self.weight_cap, mean=self.mean_weights)
        edges = {"edges": edge_rates(data.labels, data.known, of_images)} if self.graph else {}
        return super().init_client(data) | {"balance": balance} | edges

    def loss(self, local: Local, batch: Batch) -> Tensor:
        if not self.balanced:
            return super().loss(local, batch)
        logits = local.model(batch.views[0]).logits
        weights = local.state["balance"], self.class_weight(local)
        return balanced_bce(logits, *self.supervision(batch), *weights)

    def finish(self, local: Local, weights: Weights, steps: int) -> tuple[Update, State]:
        return self.weights_update(local, weights), local.state | self._graph("graph", weights)

    def client_weights(self, received: State, state: State) -> Weights:
        graph: Weights = state["graph"] if "graph" in state else received.get("first_graph", {})
        edges = {EDGES: state["edges"]} if self.graph else {}
        return {**received["weights"], **graph, **edges}
