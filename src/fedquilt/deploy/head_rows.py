"""What a site may say about classes that it does not annotate: under many methods, nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from fedquilt.deploy.study import Study
from fedquilt.method import Method
from fedquilt.payload import Update
from fedquilt.privacy.site_policy import method_name
from fedquilt.privacy.unannotated_rows import check_unannotated_rows
from fedquilt.tree import leaves
from fedquilt.validation import RefusedUpdate

HEAD = "head"
# Their losses see annotated labels only and reach a head row through its own logit alone. Other
# methods fill in labels, correct gradients or tie rows together: there a row may move honestly
# (``row_rules.py`` says why, method by method).
STILL = (
    *("fedavg", "fedavg-pl", "fedprox", "moon", "fedrs", "fedpu", "flag"),
    *("fedlgt", "scene-gcn"),
)


def keeps_rows_still(method: Method) -> bool:
    """Whether head rows of classes a site does not annotate end a round as they began it."""
    return method_name(method) in STILL and what_moves_rows(method) is None


def what_moves_rows(method: Method) -> str | None:
    """The setting by which such rows move although the method would let them rest."""
    training = method.training
    if getattr(method, "unannotated", None) != "skip":
        return 'a blank label is read as negative; refused with unannotated = "skip"'
    if training.weight_decay > 0 and training.decay_unannotated_rows:
        return "weight decay shrinks every row; refused with decay_unannotated_rows = false"
    if getattr(method, "text_encoder", None) == "learned":
        return "label vectors are trained, and every label attends to all of them"
    return None


def check_rows(study: Study, update: Update, site: str) -> None:
    """Raise RefusedUpdate where a site counts for, or has moved, a class it has not declared.

    The update's names and shapes must have been checked before.
    """
    method, declared = study.recipe.method, annotated_by(study, site)
    check_unannotated_rows(method, update, declared, site, study.classes)
    if not keeps_rows_still(method) or HEAD not in update:
        return
    for path, leaf in leaves(update[HEAD].value):
        moved = (leaf != 0).reshape(len(leaf), -1).any(1) & ~declared
        if bool(moved.any()):
            name = study.classes[int(moved.nonzero()[0])]
            raise RefusedUpdate(
                f"client {site!r}, part {HEAD!r}, {path!r}: the row of {name!r}, which the site "
                "does not annotate, has changed"
            )


def annotated_by(study: Study, site: str) -> Tensor:
    """(C,) bool: what the site declared in the study."""
    declared = study.site(site).annotates
    return torch.tensor([name in declared for name in study.classes])
