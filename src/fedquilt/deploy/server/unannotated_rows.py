"""Head rows of classes that a site does not annotate: what it may send, and what not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedquilt.core.payload import Update
from fedquilt.core.registry import find
from fedquilt.core.tree import leaves
from fedquilt.core.validation import RefusedUpdate
from fedquilt.deploy.study import Study
from fedquilt.methods import all_methods
from fedquilt.privacy.sent_parts import sent_parts
from fedquilt.privacy.site_policy import method_name
from fedquilt.privacy.unannotated_rows import annotator_parts, check_unannotated_rows
from fedquilt.training.method import Method

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


Fate = Literal["refused", "without weight", "not sent", "accepted", "not for studies"]

FILLED_IN = "sites fill in labels of classes that they do not annotate"
TAUGHT = "the received model, or a teacher, trains classes without annotations too"
# Why an honest site's row may change, so that a changed one proves nothing.
MOVED_BY = {
    "scaffold": "the control variates of other sites correct every row",
    "fedcurv": "a penalty draws every row towards other sites' weights",
    "fedlsr": "two views of an image are to agree in every class",
    "fednoro": TAUGHT,
    "fedvls": TAUGHT,
    "rscfed": TAUGHT,
    "fedirm": TAUGHT,
    "fedfixmatch": FILLED_IN,
    "cbafed": FILLED_IN,
    "fedmlp": FILLED_IN,
    "fedlsm": FILLED_IN,
    "fedc-tran": "label vectors are trained, and every label attends to all of them",
    "site-aware": "a graph ties the classes together",
}


@dataclass(frozen=True)
class RowRule:
    fate: Fate
    why: str

    def __str__(self) -> str:
        return f"{self.fate}: {self.why}"


def row_rule(name: str) -> RowRule:
    """Of a method with its default settings."""
    method: Method = find("method", all_methods(), name)()
    if method.needs_pooled_data or method.needs_complete_labels:
        return RowRule("not for studies", "it is a bound for simulations")
    if HEAD not in {part.name for part in sent_parts(name)}:
        return RowRule("not sent", "no head row that is trained leaves a site")
    if HEAD in annotator_parts(method):
        return RowRule("without weight", "only annotators count; any weight for it is refused")
    if keeps_rows_still(method):
        return RowRule("refused", "an honest site cannot change it")
    if name in STILL:
        return RowRule("accepted", str(what_moves_rows(method)))
    return RowRule("accepted", MOVED_BY.get(name, "nothing is known about its rows"))
