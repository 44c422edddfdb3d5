from __future__ import annotations

import torch
from torch import tensor

from fedquilt.models.batch_statistics import second_moments, variances


def statistics(mean: float, variance: float) -> dict[str, torch.Tensor]:
    names = ("norm.running_mean", "norm.running_var", "norm.weight")
    return {name: tensor([value]) for name, value in zip(names, (mean, variance, 5.0))}


def test_the_law_of_total_variance():
    # Two clients of equal size with means 0 and 4, variances 1 and 3: the pooled mean is 2, the
    # variance the mean of (v + (m - 2)^2) = (1 + 4 + 3 + 4) / 2 = 6, not 2.
    one, two = second_moments(statistics(0.0, 1.0)), second_moments(statistics(4.0, 3.0))
    pooled = variances({name: (one[name] + two[name]) / 2 for name in one})
    assert pooled == statistics(2.0, 6.0)


def test_variances_inverts_second_moments():
    weights = statistics(0.3, 1e-4)
    back = variances(second_moments(weights))
    torch.testing.assert_close(back["norm.running_var"], weights["norm.running_var"])
    assert back["norm.running_var"].dtype == torch.float32
    assert second_moments({"a": tensor([1.0])}) == {"a": tensor([1.0])}


def test_no_variance_is_negative():
    moments = {"a.running_mean": tensor([2.0]), "a.running_var": tensor([3.9]).double()}
    assert variances(moments)["a.running_var"].tolist() == [0.0]
