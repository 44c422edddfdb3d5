"""The server's check of head rows that belong to classes a site does not annotate.

Under some methods an honest site never changes such a row, so a changed one is refused. Under
others it may change for a good reason, and the server has to accept it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fedquilt.core.payload import Update
from fedquilt.core.registry import find
from fedquilt.core.tree import leaves
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.deploy.study import Study
from fedquilt.methods import all_methods
from fedquilt.privacy.sent_parts import EXAMPLE, sent_parts, surveyed_parts
from fedquilt.privacy.site_policy import method_name
from fedquilt.privacy.unannotated_rows import annotator_parts, check_unannotated_rows
from fedquilt.training.method import Method

HEAD = "head"

# Methods whose loss uses annotated labels only and reaches a head row through its own logit only.
ROW_KEEPING_METHODS = (
    *("fedavg", "fedavg-pl", "fedprox", "moon", "fedrs", "fedpu", "flag"),
    *("fedlgt", "scene-gcn"),
)

PSEUDO_LABELS = "sites fill in labels of classes that they do not annotate"
TEACHER = "the received model, or a teacher, trains classes without annotations too"
# Under these methods an honest site may change such a row, for the reason given.
WHY_ROWS_CHANGE = {
    "scaffold": "the control variates of other sites correct every row",
    "fedcurv": "a penalty draws every row towards other sites' weights",
    "fedlsr": "two views of an image are trained to agree in every class",
    "fednoro": TEACHER,
    "fedvls": TEACHER,
    "rscfed": TEACHER,
    "fedirm": TEACHER,
    "fedfixmatch": PSEUDO_LABELS,
    "cbafed": PSEUDO_LABELS,
    "fedmlp": PSEUDO_LABELS,
    "fedlsm": PSEUDO_LABELS,
    "fedc-tran": "label vectors are trained, and every label attends to all of them",
    "site-aware": "a graph ties the classes together",
}

RowHandling: TypeAlias = Literal[
    "refused", "without weight", "not sent", "accepted", "not for studies"
]


@dataclass(frozen=True)
class RowPolicy:
    """What the server does with a changed row of a class that its site does not annotate."""

    handling: RowHandling
    reason: str

    def __str__(self) -> str:
        return f"{self.handling}: {self.reason}"


def check_rows(study: Study, update: Update, site: str) -> None:
    """Raise RefusedUpdate if a site gives weight to, or changed, a class it does not annotate.

    The names and shapes of the update must have been checked before.
    """
    method, annotated = study.recipe.method, annotated_by(study, site)
    check_unannotated_rows(method, update, annotated, site, study.classes)
    has_noise = study.recipe.privacy.training  # in every row
    if has_noise or not keeps_unannotated_rows(method) or HEAD not in update:
        return
    for path, leaf in leaves(update[HEAD].value):
        changed = (leaf != 0).reshape(len(leaf), -1).any(1) & ~annotated
        if bool(changed.any()):
            name = study.classes[int(changed.nonzero()[0])]
            raise RefusedUpdate(
                f"client {site!r}, part {HEAD!r}, {path!r}: the row of {name!r}, which the site "
                "does not annotate, has changed"
            )


def annotated_by(study: Study, site: str) -> Tensor:
    """(C,) bool: the classes that the site annotates, as declared in the study."""
    annotates = study.site(site).annotates
    return torch.tensor([name in annotates for name in study.classes])


def keeps_unannotated_rows(method: Method) -> bool:
    """Return whether an honest site leaves head rows of unannotated classes unchanged."""
    is_listed = method_name(method) in ROW_KEEPING_METHODS
    return is_listed and row_changing_setting(method) is None


def row_changing_setting(method: Method) -> str | None:
    """Return which setting changes such rows although the method as such would not, if any."""
    training = method.training
    if getattr(method, "unannotated", None) != "skip":
        return 'unannotated labels are treated as negative; refused with unannotated = "skip"'
    if training.weight_decay > 0 and training.decay_unannotated_rows:
        return "weight decay shrinks every row; refused with decay_unannotated_rows = false"
    if getattr(method, "text_encoder", None) == "learned":
        return "label vectors are trained, and every label attends to all of them"
    return None


def row_policy(name: str) -> RowPolicy:
    """Return the policy for a method with its default settings."""
    method: Method = find("method", all_methods(), name)()
    if method.needs_pooled_data or method.needs_complete_labels:
        return RowPolicy("not for studies", "it is a bound for simulations")
    if HEAD not in {part.name for part in sent_parts(name)}:
        return RowPolicy("not sent", "no trained head row leaves a site")
    if HEAD in annotator_parts(method):
        return RowPolicy("without weight", "only annotators count; any other weight is refused")
    if keeps_unannotated_rows(method):
        return RowPolicy("refused", "an honest site cannot change it")
    if name in ROW_KEEPING_METHODS:
        return RowPolicy("accepted", str(row_changing_setting(method)))
    return RowPolicy("accepted", WHY_ROWS_CHANGE.get(name, "nothing is known about its rows"))


def what_leaves_a_client(name: str) -> dict[str, Any]:
    """Return, as JSON, what a method's clients send and what becomes of unannotated rows."""
    return {
        "leaves_a_client": {
            "example": EXAMPLE,
            "once": [part.to_dict() for part in surveyed_parts(name)],
            "parts": [part.to_dict() for part in sent_parts(name)],
        },
        "changed_row_of_an_unannotated_class": str(row_policy(name)),
    }
