"""An audit of every noise in one run (Steinke et al., NeurIPS 2023): it finds no more than epsilon.

Half of the images, by a coin for each, are in the data. Whoever sees what leaves, and knows all
images, guesses the coins it is sure about. How many it gets right is a lower bound of epsilon,
wrong in at most 5 of 100 runs.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy.stats import binom
from support.tiny_federation import make_federation
from torch import Tensor

from fedquilt.core.noise import Draws, SeededNoise
from fedquilt.core.payload import Mean, Sum, weight_of
from fedquilt.data.augmentation.views import Views
from fedquilt.data.batches import make_batch
from fedquilt.data.client_data import ClientData
from fedquilt.losses.prototypes import class_prototypes, clipped_rows
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.privacy.noisy_parts import SURVEY, with_noisy_parts
from fedquilt.training.client import Workspace, open_round
from fedquilt.training.client_step import trained_parameters
from fedquilt.training.method import Stage
from fedquilt.training.noise_plan import training_noise
from fedquilt.training.privacy_settings import Privacy
from fedquilt.training.private_step import clipped_sum, private_gradients
from fedquilt.training.task import Task

IMAGES, DELTA = 100, 1e-5
CONFIDENCE = 0.95
GUESSES = 60
BUDGETS = (1.0, 3.0, 8.0, 20.0)


class Silent(SeededNoise):
    def gaussian(self, count: int) -> Tensor:
        return torch.zeros(count, dtype=torch.float64)


def lower_bound(scores: Tensor, coins: Tensor) -> float:
    """The largest epsilon that is refuted by guessing the highest and the lowest scores.

    How many are guessed is fixed: the best number, chosen afterwards, would prove nothing.
    """
    order, half = scores.argsort(), GUESSES // 2
    right = int(coins[order[-half:]].sum()) + int((~coins[order[:half]]).sum())

    def is_refuted(epsilon: float) -> bool:
        rate = 1 / (1 + torch.tensor(-epsilon, dtype=torch.float64).exp().item())
        left = binom.pmf(range(right - 1, -1, -1), 2 * half, rate).cumsum()
        slack = max((part / (i + 1) for i, part in enumerate(left)), default=0.0)
        chance = binom.sf(right - 1, 2 * half, rate) + 2 * len(coins) * DELTA * slack
        return bool(chance < 1 - CONFIDENCE)

    low, high = 0.0, 50.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low


def everyone(method: FedAvg | FedMLP, **privacy: object) -> tuple[Task, ClientData]:
    federation = make_federation(annotated=((0, 1, 2), (0, 1, 2)), images_each=IMAGES, rounds=4)
    task = federation.fitted(method).task
    settings = Privacy(delta=DELTA, **privacy)  # type: ignore[arg-type]
    plain = replace(task.preprocessing, views=Views(weak="plain"))
    return replace(task, privacy=settings, preprocessing=plain), federation.clients["site-0"]


def only(data: ClientData, coins: Tensor) -> ClientData:
    return replace(
        data, indices=data.indices[coins], labels=data.labels[coins], known=data.known[coins]
    )


def coins_of(seed: int) -> Tensor:
    return torch.rand(IMAGES, generator=torch.Generator().manual_seed(seed)) < 0.5


def of_prototypes(epsilon: float, draws: Draws, coins: Tensor) -> Tensor:
    """How much the released sums point to each image's own, nearly orthogonal, features."""
    method = FedMLP(warmup_rounds=1)
    task, data = everyone(method, epsilon=epsilon, parts=("prototypes",))
    made = torch.randn(IMAGES, 256, generator=torch.Generator().manual_seed(5))
    features = clipped_rows(made * 9, 1.0)
    here = only(data, coins)
    means, counts = class_prototypes(features[coins], here.labels, here.known)
    sent = with_noisy_parts(method, task, here, {"prototypes": Mean(means, counts)}, 0, draws)
    left = sent["prototypes"]
    sums = left.value.double() * weight_of(left)[..., None]  # (C, 2, d): absent, present
    own = torch.nn.functional.one_hot(data.labels.long(), 2).double()  # (n, C, 2)
    return torch.einsum("ncs,nd,csd->n", own, features.double(), sums)


def of_counts(epsilon: float, draws: Draws, coins: Tensor) -> Tensor:
    """Counts say little about each of many images: how many positives are more than expected."""
    method = FedAvg(positive_weight_from="population")
    task, data = everyone(method, epsilon=epsilon, parts=("positives", "annotated"))
    here = only(data, coins)
    sent = with_noisy_parts(method, task, here, method.survey(here), SURVEY, draws)
    assert isinstance(sent["positives"], Sum)
    surplus = sent["positives"].value - data.labels.sum(0) / 2
    return (data.labels.double() - data.labels.double().mean(0)) @ surplus


def of_training(epsilon: float, draws: Draws, coins: Tensor) -> Tensor:
    """How often each image was drawn: the noised gradients of two epochs, fitted by its own one."""
    method = FedAvg(positive_weight="none", weighting="uniform")
    method = replace(method, training=replace(method.training, batch_size=25))
    task, data = everyone(method, epsilon=epsilon, training=True, clip=0.1)
    task = replace(task, round_count=2)
    noisy = replace(data, images=torch.randint(0, 256, data.images.shape).to(torch.uint8))
    workspace = Workspace.of(task, torch.device("cpu"))
    received = {"weights": workspace.trained.read()}
    local = open_round(method, task, workspace, only(noisy, coins), received, {}, 0)
    parameters = trained_parameters(workspace.training, Stage())
    steps = 2 * -(-int(coins.sum()) // 25)
    source = draws("audit")
    total: dict[str, Tensor] = {}
    for gradients in private_gradients(method, task, local, parameters, source, steps):
        for name, leaf in gradients.items():
            total[name] = total.get(name, 0.0) + leaf
    own = own_gradients(task, method, noisy, workspace, parameters)
    release = training_noise(method, task, int(coins.sum()))
    is_silent = isinstance(source, Silent)
    noise = 0.0 if is_silent else (release.noise_multiplier * task.privacy.clip) ** 2 * steps
    gram = own @ own.T
    gram.diagonal().add_(noise + 1e-9 * float(gram.diagonal().mean()))
    return torch.linalg.solve(gram, own @ flat(total))


def own_gradients(task, method, data, workspace, parameters) -> Tensor:
    """(n, d) the clipped gradient of each image."""
    received = {"weights": workspace.trained.read()}
    local = open_round(method, task, workspace, data, received, {}, 0)
    rows = []
    for row in range(len(data)):
        batch = make_batch(
            data,
            torch.tensor([row]),
            method.views(0),
            task.preprocessing,
            torch.Generator(),
            data.known.device,
        )
        one = torch.zeros(1, dtype=torch.int64)
        rows.append(flat(clipped_sum(method, local, parameters, batch, one, task.privacy.clip)))
    return torch.stack(rows)


def flat(leaves: dict[str, Tensor]) -> Tensor:
    return torch.cat([leaves[name].double().flatten() for name in sorted(leaves)])


RELEASES = {"prototypes": of_prototypes, "counts": of_counts, "training": of_training}


@pytest.mark.parametrize("epsilon", BUDGETS)
@pytest.mark.parametrize("name", RELEASES)
def test_an_audit_finds_no_more_than_the_claimed_epsilon(name: str, epsilon: float) -> None:
    torch.manual_seed(1)
    coins = coins_of(11)
    draws: Draws = lambda *names: SeededNoise("audit", int(epsilon))  # noqa: E731
    assert lower_bound(RELEASES[name](epsilon, draws, coins), coins) <= epsilon


@pytest.mark.parametrize("name", ["prototypes", "training"])
def test_the_audit_would_find_a_release_without_noise(name: str) -> None:
    torch.manual_seed(1)
    coins = coins_of(11)
    assert lower_bound(RELEASES[name](20.0, Silent, coins), coins) > 2.0


def test_the_bound_of_sure_and_of_blind_guesses() -> None:
    coins = coins_of(3)
    assert lower_bound(coins.double(), coins) > 2.5
    assert lower_bound(torch.arange(IMAGES).double(), coins) < 1.0
