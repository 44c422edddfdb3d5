"""The server's check that a site has no weight in classes that it does not annotate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Part, Update, weight_of
from fedquilt.core.tree import leaves
from fedquilt.core.update_checks import RefusedUpdate
from fedquilt.core.wording import counted
from fedquilt.privacy.disclosure_floor import nonzero_rows
from fedquilt.training.method import Method
from fedquilt.training.provenance import OF_ANNOTATORS, Provenance


def annotator_parts(method: Method) -> tuple[str, ...]:
    """Return the parts in which only a class's annotators have weight, by the method."""
    return tuple(
        name for name, provenance in method.provenance.items() if _is_for_annotators(provenance)
    )


def check_unannotated_rows(
    method: Method, update: Update, declared: Tensor, client: str, classes: Sequence[str] = ()
) -> None:
    """Raise RefusedUpdate if an update has weight in classes that the client has not declared.

    The update's names and shapes must have been checked before. ``declared`` is (C,) bool;
    ``classes`` are their names, for the message.
    """
    for name in annotator_parts(method):
        if name not in update:
            continue
        undeclared = (_has_weight(update[name]) & ~declared).nonzero().flatten().tolist()
        if undeclared:
            first = undeclared[:5]
            found = ", ".join(repr(classes[c]) if classes else f"number {c}" for c in first)
            raise RefusedUpdate(
                f"client {client!r}, part {name!r}: it has weight in "
                f"{counted(len(undeclared), 'class', 'classes')} that the client does not "
                f"annotate: {found}"
            )


def _is_for_annotators(provenance: Provenance) -> bool:
    rules: Iterable[object] = provenance if isinstance(provenance, tuple) else (provenance,)
    return any(rule in OF_ANNOTATORS for rule in rules if isinstance(rule, str))


def _has_weight(part: Part) -> Tensor:
    """Return (C,) bool: a nonzero weight or, in a part without weights, a nonzero value."""
    if isinstance(part, Mean):
        return nonzero_rows(weight_of(part)).cpu()
    return torch.stack([nonzero_rows(leaf).cpu() for _, leaf in leaves(part.value)]).any(0)
