"""Whether a method's training can be made private (DP-SGD), and why not."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedquilt.core.errors import UserError
from fedquilt.training.averaging import WeightedAveraging
from fedquilt.training.method import Method
from fedquilt.training.task import Task


def check_private_training(method: Method, task: Task) -> None:
    """Raise UserError if noise in every step would not cover all that a client sends."""
    why = why_not_apart(method) or why_data_shows(method)
    if why is None:
        why = why_network_couples(task.build_network())
    if why is not None:
        raise UserError(f"privacy.training: {why}")


def why_not_apart(method: Method) -> str | None:
    """Why a step of the method is no sum over single images; None if it is."""
    name = type(method).__name__
    if vars(type(method)).get("trains_image_by_image") is True:
        return None
    if method.pseudo_label_key is not None:
        reason = "it fills in labels, which depend on the site's other images"
    elif method.parts:
        reason = f"it also sends {', '.join(method.parts)}, computed from the data"
    else:
        reason = "nobody has shown that its steps treat images one by one"
    return (
        f"{name} is not supported: {reason}. Use fedavg, fedavg-pl, fedprox, surgical-aggregation "
        "or quilt, or protect small parts only (privacy.parts)"
    )


def why_data_shows(method: Method) -> str | None:
    """Why the method's settings use statistics of the data without noise."""
    if not isinstance(method, WeightedAveraging):
        return "only methods that average weights are supported"
    if method.positive_weight != "none":
        return (
            f"method.positive_weight = {method.positive_weight!r} is a statistic of the site's "
            "labels; set it to 'none'"
        )
    if getattr(method, "logit_adjustment", False):
        return (
            "method.logit_adjustment uses the site's share of positives; set "
            "method.logit_adjustment = false"
        )
    if method.weighting != "uniform":
        return (
            f"method.weighting = {method.weighting!r} sends the number of images; set it to "
            "'uniform'"
        )
    if method.head_rows not in ("all", "annotators"):
        return (
            f"method.head_rows = {method.head_rows!r} sends numbers of images; set it to "
            "'annotators'"
        )
    if method.training.precision != "float32":
        return (
            "gradients of single images are computed in float32; set method.training.precision = "
            "'float32'"
        )
    return None


def why_network_couples(network: nn.Module) -> str | None:
    for name, module in network.train().named_modules():
        # A frozen part stays in evaluation mode: its batch norm uses stored statistics.
        if isinstance(module, _BatchNorm) and module.training:
            return (
                f"batch norm ({name}) mixes the images of a batch, so no gradient belongs to one "
                "image; set model.norm = 'group', train the head alone (model.train = 'head'), or "
                "use a network without batch norm such as 'small-cnn'"
            )
    return None
