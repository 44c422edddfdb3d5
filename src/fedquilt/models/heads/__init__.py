"""Heads by name: the table ``HEADS``; ``head_settings`` are keyword options of a head's builder."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torch import nn

from fedquilt.core.errors import UserError, nearest
from fedquilt.core.registry import find

Setting: TypeAlias = bool | int | float | str

SOFTMAX = "softmax"  # for mutually exclusive classes
# Builders take (feature_count, class_count, seed) and keyword options. A builder with an argument
# ``class_names`` receives the names.
HEADS = {
    "linear": "fedquilt.models.heads.linear:build_head",
    SOFTMAX: "fedquilt.models.heads.softmax:build_softmax_head",
    "hidden-layer": "fedquilt.models.heads.hidden_layer:build_hidden_layer_head",
    "sphere": "fedquilt.models.heads.sphere:build_sphere_head",
    "cosine": "fedquilt.models.heads.cosine:build_cosine_head",
    "etf": "fedquilt.models.heads.layers.class_directions:build_etf_head",
    "ladm": "fedquilt.models.heads.ladm:build_ladm_head",
    "c-tran": "fedquilt.models.heads.c_tran:build_c_tran",
    "scene-gcn": "fedquilt.models.heads.scene_gcn:build_scene_gcn",
    "site-aware": "fedquilt.models.heads.site_aware:build_site_aware",
}
MAP_HEADS = ("ladm", "c-tran", "scene-gcn")  # heads on the feature map, before pooling
NAMES = "class_names"


def build_named_head(
    name: str,
    settings: Mapping[str, Setting],
    feature_count: int,
    class_names: Sequence[str],
    seed: int,
) -> nn.Module:
    builder = find("head", HEADS, name)
    options = list(inspect.signature(builder).parameters)[3:]
    for setting in settings:
        if setting not in options or setting == NAMES:
            known = [option for option in options if option != NAMES]
            hint = nearest(setting, known) if known else "; it has none"
            raise UserError(f"model.head_settings: head {name!r} has no setting {setting!r}{hint}")
    given = {NAMES: tuple(class_names)} if NAMES in options else {}
    head: nn.Module = builder(feature_count, len(class_names), seed, **settings, **given)
    return head
