"""privacy_audit(): what a curious server can learn from the messages of a finished simulation.

Each audit is an attack on what clients would send in one more round, after the run's own
protection. A weak attack proves nothing; a strong one shows what is open.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Update, addressed, weight_of
from fedquilt.core.tree import Weights
from fedquilt.core.wording import counted
from fedquilt.data.batches import ordered_batches
from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.engines.sequential import SequentialEngine
from fedquilt.losses.cross_entropy import elementwise_bce
from fedquilt.metrics.ranking import roc_auc
from fedquilt.models.network import Output
from fedquilt.privacy.disclosure_floor import DisclosureFloor
from fedquilt.privacy.transform import apply_transforms
from fedquilt.recipes.recipe import Recipe
from fedquilt.runs.audit_tables import Finding, write_findings
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.experiment import CACHE
from fedquilt.runs.run_folder import RunFolder
from fedquilt.runs.simulation import Simulation, simulate
from fedquilt.training.client import Workspace, run_client
from fedquilt.training.method import State
from fedquilt.training.rounds import start_server

CLIENTS, REMOVED = 5, 3  # how many are audited: clients, and images left out of each
PROTOTYPES = "prototypes"
WHOLE = ("body", "head", "buffers")


def privacy_audit(folder: Path, *, cache: Path = CACHE, device: str = "cpu") -> list[Finding]:
    """Audit a finished simulation; write the table for its report and ``privacy_audit.json``."""
    files = RunFolder(folder)
    recipe = files.read_recipe()
    if not files.checkpoints.is_dir():
        raise UserError(f"{folder} holds no checkpoint of a simulation, so it cannot be audited")
    checkpoints = Checkpoints(files.checkpoints)
    saved, _ = checkpoints.restore()
    if saved is None:
        raise UserError(f"{folder} holds no finished round to audit")
    simulation = simulate(recipe, cache)
    audit = _Audit(recipe, simulation, checkpoints, saved.server, saved.round_count - 1, device)
    found = audit.findings()
    write_findings(folder, found)
    return found


@dataclass
class _Audit:
    recipe: Recipe
    simulation: Simulation
    states: Checkpoints
    server: State
    round_index: int
    device: str

    def __post_init__(self) -> None:
        self.workspace = Workspace.of(self.simulation.task, torch.device(self.device))
        self.names = sorted(self.simulation.clients)[:CLIENTS]
        self.sent = {name: self._sends(self.simulation.clients[name]) for name in self.names}

    def findings(self) -> list[Finding]:
        few, prototypes = self._by_prototypes()
        feature, labels, presence = self._differences()
        return [
            Finding(
                "membership",
                "update",
                _mean([self._by_update(name) for name in self.names]),
                0.5,
                "AUC of telling a site's images from test images by their loss under its model",
            ),
            Finding(
                "membership",
                PROTOTYPES,
                prototypes,
                0.5,
                "AUC of telling the positives in a prototype from test positives by similarity"
                + (f"; the smallest is of {counted(few, 'image')}" if few else ""),
            ),
            Finding(
                "differencing",
                PROTOTYPES,
                feature,
                0.0,
                "similarity of an image's feature to what changes when the image is left out",
            ),
            Finding(
                "differencing",
                "counts",
                labels,
                0.5,
                "share of the left-out image's annotated labels that the counts give away",
            ),
            Finding(
                "differencing",
                "weights",
                presence,
                0.0,
                "share of left-out images whose absence shows in the weight of the body",
            ),
            Finding(
                "count recovery",
                "update",
                self._counts_from_bias(),
                0.0,
                "correlation of the head's first change of bias with the share of positives",
            ),
        ]

    def _sends(self, data: ClientData, *, first: bool = False) -> Update:
        """What the client sends in the audited or the first round, after the run's protection."""
        method, task = self.recipe.method, self.simulation.task
        server = self.first_server if first else self.server
        payload = addressed(method.broadcast(server), data.name)
        is_whole = len(data) == len(self.simulation.clients[data.name])
        kept = self.states.get(data.name) if is_whole and not first else {}
        index = 0 if first else self.round_index
        update, state = run_client(method, task, self.workspace, data, payload, kept, index)
        floor = (DisclosureFloor(self.recipe.min_cell),)
        return apply_transforms(floor, method, data, state["method"], update)

    @cached_property
    def first_server(self) -> State:
        simulation = self.simulation
        engine = SequentialEngine(simulation.task, simulation.clients, device=self.device)
        return start_server(self.recipe.method, simulation.task, engine)

    def _model(self, name: str) -> Weights:
        """The client's weights after its round, as the server knows them."""
        received: Any = addressed(self.recipe.method.broadcast(self.server), name)["weights"]
        changes: dict[str, Tensor] = {}
        for part in WHOLE:
            changes |= getattr(self.sent[name].get(part), "value", {})
        return {
            path: weight + changes[path] if path in changes else weight
            for path, weight in received.items()
        }

    def _by_update(self, name: str) -> float | None:
        data = self.simulation.clients[name]
        model = self._model(name)
        if {*model} != {*self.simulation.task.layout.names}:
            return None  # a part of the network is private, so the server has no whole model
        annotated = data.known.any(0)
        losses = [self._losses(model, each, annotated) for each in (data, self._test_data())]
        return _auc(-losses[0], -losses[1])

    def _losses(self, weights: Weights, data: ClientData, classes: Tensor) -> Tensor:
        """The loss of each image over the annotated ones of these classes."""
        logits = self._output(weights, data).logits
        known = data.known & classes
        entries = elementwise_bce(logits, data.labels.to(logits))
        return torch.where(known, entries, 0.0).sum(1) / known.sum(1).clamp(min=1)

    def _by_prototypes(self) -> tuple[int, float | None]:
        """The smallest number of members, and the mean AUC over clients and classes."""
        found, sizes = [], []
        test = self._test_data()
        for name in self.names:
            part = self.sent[name].get(PROTOTYPES)
            if not isinstance(part, Mean):
                continue
            data, weights = self.simulation.clients[name], self._model(name)
            assert isinstance(part.value, Tensor)
            inside = self._output(weights, data).features
            outside = self._output(weights, test).features
            for column in (weight_of(part)[:, 1] > 0).nonzero().flatten().tolist():
                members = inside[data.positives()[:, column]]
                others = outside[test.positives()[:, column]]
                if len(members) and len(others):
                    prototype = part.value[column, 1]
                    cosine = [
                        torch.cosine_similarity(each, prototype[None].to(each))
                        for each in (members, others)
                    ]
                    found.append(_auc(*cosine))
                    sizes.append(len(members))
        return min(sizes, default=0), _mean(found)

    def _differences(self) -> tuple[float | None, float | None, float | None]:
        """What leaving out one image changes: of prototypes, of counts and of weights."""
        features: list[float | None] = []
        labels: list[float | None] = []
        presence: list[float | None] = []
        for name, data, row in self._removals():
            less = self._sends(_without(data, row))
            full = self.sent[name]
            weights = [float(weight_of(each["body"])) for each in (full, less)]  # type: ignore[arg-type]
            presence.append(float(abs(weights[0] - weights[1] - 1) < 0.5))
            parts = [each.get(PROTOTYPES) for each in (full, less)]
            if not all(isinstance(part, Mean) for part in parts):
                continue
            feature = self._output(self._model(name), data).features[row].double()
            sums = [_sums(part) for part in parts if isinstance(part, Mean)]
            counts = [weight_of(part) for part in parts if isinstance(part, Mean)]
            present = (counts[0] - counts[1])[:, 1] > 0.5
            known = data.known[row]
            labels.append(float((present == (data.labels[row] == 1))[known].double().mean()))
            for column in (data.known[row] & (data.labels[row] == 1)).nonzero().flatten().tolist():
                change = (sums[0] - sums[1])[column, 1]
                features.append(float(torch.cosine_similarity(change, feature, dim=0)))
        return _mean(features), _mean(labels), _mean(presence)

    def _removals(self) -> Iterator[tuple[str, ClientData, int]]:
        for name in self.names[:2]:
            data = self.simulation.clients[name]
            for row in data.rows_with_positives[:REMOVED].tolist():
                yield name, data, row

    def _counts_from_bias(self) -> float | None:
        changes, shares = [], []
        for name in self.names:
            data = self.simulation.clients[name]
            bias = self._bias_of(self._sends(data, first=True))
            if bias is None:
                return None
            annotated = data.known.any(0)
            share = data.positive_counts() / data.annotated_counts().clamp(min=1)
            changes.append(bias[annotated].double())
            shares.append(share[annotated].double())
        pair = torch.stack([torch.cat(changes), torch.cat(shares)])
        if pair.shape[1] < 3 or bool((pair.std(1) == 0).any()):
            return None
        return float(torch.corrcoef(pair)[0, 1])

    def _bias_of(self, update: Update) -> Tensor | None:
        head: Any = getattr(update.get("head"), "value", {})
        found = [change for path, change in head.items() if change.ndim == 1]
        return found[0] if found else None

    def _output(self, weights: Weights, data: ClientData) -> Output:
        task, device = self.simulation.task, self.workspace.device
        draws = torch.Generator().manual_seed(0)

        def batches(view: str, size: int) -> Iterator[Any]:
            return ordered_batches(data, task.preprocessing, draws, device, view, size)

        return self.workspace.predict(batches, weights, "plain")

    def _test_data(self) -> ClientData:
        return _as_client(self.simulation.splits.test)


def _as_client(test: MultiLabelDataset) -> ClientData:
    return ClientData(
        name="test",
        images=test.images,
        indices=torch.arange(len(test)),
        labels=test.labels,
        known=test.known,
    )


def _without(data: ClientData, row: int) -> ClientData:
    keep = torch.arange(len(data)) != row
    return replace(
        data,
        indices=data.indices[keep],
        labels=data.labels[keep],
        known=data.known[keep],
        patients=None if data.patients is None else data.patients[keep],
    )


def _sums(part: Mean) -> Tensor:
    assert isinstance(part.value, Tensor)
    return part.value.double() * weight_of(part)[..., None]


def _auc(members: Tensor, others: Tensor) -> float:
    scores = torch.cat([members, others])[:, None].double()
    labels = torch.zeros(scores.shape, dtype=torch.uint8)
    labels[: len(members)] = 1
    return float(roc_auc(scores, labels, torch.ones_like(labels, dtype=torch.bool))[0])


def _mean(values: Sequence[float | None]) -> float | None:
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None
