"""What the server can still check when it sees sums only: that they could be right as a whole."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import torch

from fedquilt.core.fixed_point import PartScale, Scales
from fedquilt.core.payload import Mean, Update
from fedquilt.core.tree import leaves
from fedquilt.deploy.server.unannotated_rows import annotated_by
from fedquilt.deploy.study import Study
from fedquilt.privacy.unannotated_rows import annotator_parts
from fedquilt.training.agreed_bounds import weight_limit


class AbsurdSum(ValueError):
    """Raised for a sum that honest sites cannot have made; nobody can tell whose fault it is."""


def check_round_sums(
    study: Study,
    round_index: int,
    survivors: Collection[str],
    expected: Update,
    sums: Mapping[str, Mapping[str, Any]],
    scales: Scales,
) -> None:
    """Raise AbsurdSum if a number is beyond what these sites' agreed images allow."""
    method, images = study.recipe.method, study.agreed_images
    for name, part in expected.items():
        weights = [1.0] * len(survivors)
        if isinstance(part, Mean):
            limits = (images[site] for site in survivors)
            weights = [
                weight_limit(method, study.task, round_index, name, count) for count in limits
            ]
        _check_size(name, sums[name], scales[name], math.fsum(weights), len(survivors))
    _check_rows(study, survivors, expected, sums)


def check_survey_sums(
    survivors: Collection[str], sums: Mapping[str, Mapping[str, Any]], scales: Scales
) -> None:
    for name, each in sums.items():
        _check_size(name, each, scales[name], float(len(survivors)), len(survivors))
        if any(bool((leaf < 0).any()) for _, leaf in leaves(each)):
            raise AbsurdSum(f"the sum of part {name!r} has a negative count")


def _check_size(
    name: str, sums: Mapping[str, Any], scale: PartScale, weight: float, sites: int
) -> None:
    """Compare with the largest sum; each site's integers are rounded."""
    limits = {
        "total": weight * scale.largest * 2.0**scale.value_bits + sites,
        "weight": weight * 2.0**scale.weight_bits + sites,
    }
    for kind, tree in sums.items():
        for _, leaf in leaves(tree):
            largest = float(leaf.abs().max()) if leaf.numel() else 0.0
            lowest = int(leaf.min()) if leaf.numel() else 0
            if largest > limits[kind] or lowest == torch.iinfo(torch.int64).min:
                raise AbsurdSum(f"the sum of part {name!r} is beyond what these sites agreed on")
            if kind == "weight" and lowest < 0:
                raise AbsurdSum(f"the summed weight of part {name!r} is negative")


def _check_rows(
    study: Study,
    survivors: Collection[str],
    expected: Update,
    sums: Mapping[str, Mapping[str, Any]],
) -> None:
    annotated = torch.stack([annotated_by(study, site) for site in survivors]).any(0)
    for name in annotator_parts(study.recipe.method):
        if name not in expected:
            continue
        kind = "weight" if isinstance(expected[name], Mean) else "total"
        for _, leaf in leaves(sums[name][kind]):
            if bool((leaf[~annotated] != 0).any()):
                raise AbsurdSum(f"part {name!r} has weight in classes that none of them annotates")
