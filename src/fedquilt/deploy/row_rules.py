"""What becomes of a changed head row of a class that its site does not annotate, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fedquilt.deploy.head_rows import HEAD, STILL, keeps_rows_still, what_moves_rows
from fedquilt.method import Method
from fedquilt.methods import all_methods
from fedquilt.privacy.unannotated_rows import annotators_parts
from fedquilt.registry import find
from fedquilt.sent_parts import sent_parts

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
    if HEAD in annotators_parts(method):
        return RowRule("without weight", "only annotators count; any weight for it is refused")
    if keeps_rows_still(method):
        return RowRule("refused", "an honest site cannot change it")
    if name in STILL:
        return RowRule("accepted", str(what_moves_rows(method)))
    return RowRule("accepted", MOVED_BY.get(name, "nothing is known about its rows"))
