"""The federation in pfl (pfl-research): its simulated backend and federated averaging."""

from __future__ import annotations

import itertools

import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn

from benchmarks.speed.simulators.simulated_federation import (
    BATCH,
    LEARNING_RATE,
    Federation,
    RoundLog,
    local_loss,
    make_federation,
    shuffled,
)
from fedquilt.models.network import Network, read_weights


class Learner(nn.Module):
    """A network with its loss, as pfl requires."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network

    def loss(self, pixels: Tensor, labels: Tensor, known: Tensor) -> Tensor:
        return local_loss(self.network, pixels, labels, known)

    @torch.no_grad()
    def metrics(self, pixels: Tensor, labels: Tensor, known: Tensor) -> dict[str, Weighted]:
        """Called in the first round, which is not measured."""
        return {
            "loss": Weighted(float(self.loss(pixels, labels, known)) * len(pixels), len(pixels))
        }


class RoundEnd(TrainingProcessCallback):
    """Logs the end of a round and its weights."""

    def __init__(self, log: RoundLog) -> None:
        self._log = log

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        self._log.end_round(read_weights(model.pytorch_model.network))
        return False, Metrics()


def users(federation: Federation) -> FederatedDataset:
    """Return all clients in turn, each with its images in this round's order."""
    calls = itertools.count()

    def make_dataset(name: str) -> PyTorchTensorDataset:
        data, round_index = federation.clients[name], next(calls) // len(federation.clients)
        rows = shuffled(federation.task, data, round_index)
        return PyTorchTensorDataset((data.pixels(rows), data.labels[rows], data.known[rows]))

    return FederatedDataset(
        make_dataset, get_user_sampler("minimize_reuse", list(federation.clients))
    )


def run(setting: str, rounds: int) -> RoundLog:
    log = RoundLog()
    federation = make_federation(setting)
    learner = Learner(federation.task.build_network().train())
    model = PyTorchModel(
        learner,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(learner.parameters(), lr=1.0),
    )
    data = users(federation)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds,
            train_cohort_size=len(federation.clients),
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data, postprocessors=[WeightByDatapoints()]),
        model,
        NNTrainHyperParams(
            local_batch_size=BATCH, local_num_epochs=1, local_learning_rate=LEARNING_RATE
        ),
        callbacks=[RoundEnd(log)],
        send_metrics_to_platform=False,
    )
    return log
