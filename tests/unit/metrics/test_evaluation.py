"""evaluate(): probabilities from a model, and a report that skips unannotated entries."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.tiny_federation import CLASSES, make_federation, synthetic_images, synthetic_labels
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.tree import Weights
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.metrics.evaluation import Evaluation, evaluate, predict_probabilities
from fedquilt.models.network import Output, read_weights
from fedquilt.training.client import Workspace

CPU = torch.device("cpu")


def dataset(count: int = 30) -> MultiLabelDataset:
    generator = torch.Generator().manual_seed(5)
    labels = synthetic_labels(count, generator)
    return MultiLabelDataset(
        images=synthetic_images(labels, generator),
        labels=labels,
        known=torch.ones(labels.shape, dtype=torch.bool),
        classes=CLASSES,
        ids=tuple(map(str, range(count))),
    )


def fixed(logits: Tensor):
    """A forward function that returns the given logits, batch by batch."""
    end = 0

    def forward(weights: Weights, images: Tensor) -> Output:
        nonlocal end
        end += len(images)
        return Output(images.flatten(1), logits[end - len(images) : end])

    return forward


def test_probabilities_do_not_depend_on_the_batch_size():
    federation = make_federation(backbone="small-resnet")
    workspace = Workspace.of(federation.task, CPU)
    weights = read_weights(workspace.training)
    all_at_once, in_sevens = (
        predict_probabilities(
            workspace.forward,
            weights,
            dataset().images,
            federation.task,
            batch_size=batch_size,
            device=CPU,
        )
        for batch_size in (30, 7)
    )
    assert all_at_once.shape == (30, 3)
    assert bool(((all_at_once > 0) & (all_at_once < 1)).all())
    assert torch.allclose(all_at_once, in_sevens, atol=1e-6)


def test_evaluation_changes_no_weights():
    """Batch norm's running statistics must not be updated with test images."""
    federation = make_federation(backbone="small-resnet")
    workspace = Workspace.of(federation.task, CPU)
    weights = read_weights(workspace.training)
    before = {name: tensor.clone() for name, tensor in weights.items()}
    networks = [read_weights(network) for network in (workspace.training, workspace.frozen)]
    evaluate(workspace.forward, weights, dataset(), federation.task, Evaluation(), CPU)
    assert all(torch.equal(weights[name], before[name]) for name in before)
    for network, old in zip((workspace.training, workspace.frozen), networks):
        assert all(torch.equal(now, old[name]) for name, now in read_weights(network).items())


def test_the_images_are_normalised_with_the_tasks_mean_and_std():
    task = make_federation().task
    seen = []

    def forward(weights: Weights, images: Tensor) -> Output:
        seen.append(images)
        return Output(images, torch.zeros(len(images), 3))

    images = torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None].expand(2, 1, 8, 8)
    predict_probabilities(forward, {}, images, task, batch_size=2, device=CPU)
    # (0 - 0.5) / 0.5 and (1 - 0.5) / 0.5
    assert seen[0].amin(dim=(1, 2, 3)).tolist() == seen[0].amax(dim=(1, 2, 3)).tolist() == [-1, 1]


def test_a_perfect_model_has_perfect_metrics():
    data, task = dataset(), make_federation().task
    report = evaluate(fixed(20.0 * data.labels - 10), {}, data, task, Evaluation(batch_size=8), CPU)
    assert report.classes == CLASSES
    assert report.averages["macro_auc"] == 1.0
    assert report.averages["macro_f1"] == 1.0


def test_unannotated_entries_are_skipped():
    data, task = dataset(), make_federation().task
    logits = 20.0 * data.labels - 10
    known = data.known.clone()
    known[:5] = False
    logits[:5] = -logits[:5]  # wrong, where it is not known
    partly = replace(data, known=known)
    assert evaluate(fixed(logits), {}, partly, task, Evaluation(), CPU).averages["macro_f1"] == 1
    whole = evaluate(fixed(logits), {}, data, task, Evaluation(), CPU)
    assert whole.averages["macro_f1"] < 1


@pytest.mark.parametrize(("strict", "recall"), [(False, 1.0), (True, 0.0)])
def test_strict_applies_at_the_threshold(strict, recall):
    data, task = dataset(), make_federation().task
    settings = Evaluation(strict=strict)
    report = evaluate(fixed(torch.zeros(30, 3)), {}, data, task, settings, CPU)  # all 0.5
    assert report.averages["class_recall"] == recall


@pytest.mark.parametrize(
    "settings", [{"every": 0}, {"every": -1}, {"batch_size": 0}, {"threshold": float("nan")}]
)
def test_invalid_settings_are_refused(settings):
    """Otherwise a run fails with a division by zero after its first round."""
    (name,) = settings
    with pytest.raises(UserError, match=name):
        Evaluation(**settings)
