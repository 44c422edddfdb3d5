"""Features of each class in test images, by a finished run's model: for figures of the papers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from fedquilt.core.seeding import generator_for
from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.runs.trained_models import TrainedModels


@dataclass(frozen=True)
class ClassFeatures:
    """One feature for every positive of an image: of the class, or of the whole image.

    Only heads with a feature per class separate the classes of one image.
    """

    features: Tensor  # (P, d)
    class_of: Tensor  # (P,) int64
    label_count: Tensor  # (P,) positives of the image
    per_class: bool

    def means(self, class_count: int) -> Tensor:
        """(C, d): the mean feature of each class; NaN for a class without a positive."""
        sums = torch.zeros(class_count, self.features.shape[1], dtype=torch.float64)
        sums.index_add_(0, self.class_of, self.features.to(torch.float64))
        return sums / self.class_of.bincount(minlength=class_count)[:, None]


def some_test_images(test: MultiLabelDataset, count: int) -> MultiLabelDataset:
    """Return at most ``count`` images with a positive, always the same ones."""
    rows = torch.nonzero(((test.labels == 1) & test.known).any(1)).flatten()
    order = torch.randperm(len(rows), generator=generator_for("display", "test images"))
    return test.select(rows[order[:count]])


def class_features(
    models: TrainedModels, data: MultiLabelDataset, client: str | None, device: str
) -> ClassFeatures:
    features, per_class = models.features(data.images, client, device)
    positives = (data.labels == 1) & data.known
    image, label = torch.nonzero(positives, as_tuple=True)
    chosen = features[image, label] if per_class else features[image]
    return ClassFeatures(chosen, label, positives.sum(1)[image], per_class)


def cosines(found: ClassFeatures, class_count: int) -> dict[str, Any]:
    """Return the cosines between class means, (C, C), and their mean off the diagonal."""
    means = F.normalize(found.means(class_count), dim=1)
    matrix = means @ means.T
    off_diagonal = matrix[~torch.eye(class_count, dtype=torch.bool)]
    return {
        "matrix": matrix.tolist(),
        "mean": float(off_diagonal.nanmean()),
        "of_a_simplex": -1 / (class_count - 1),
    }


def plane(found: ClassFeatures, limit: int) -> dict[str, Any]:
    """Project at most ``limit`` features to a plane by t-SNE, with a fixed seed."""
    from sklearn.manifold import TSNE

    order = torch.randperm(len(found.features), generator=generator_for("display", "points"))
    kept = order[:limit].sort().values
    points: npt.NDArray[np.float32] = F.normalize(found.features[kept].float(), dim=1).numpy()
    perplexity = min(30.0, max(1.0, (len(points) - 1) / 3))
    projected = TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(points)
    return {
        "x": projected[:, 0].round(3).tolist(),
        "y": projected[:, 1].round(3).tolist(),
        "class": found.class_of[kept].tolist(),
        "labels": found.label_count[kept].tolist(),
    }
