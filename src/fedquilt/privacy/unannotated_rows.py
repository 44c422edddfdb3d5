"""The server's check that a site has no say in a class that it does not annotate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from fedquilt.core.payload import Mean, Part, Update, weight_of
from fedquilt.core.tree import leaves
from fedquilt.core.validation import RefusedUpdate
from fedquilt.privacy.disclosure_floor import speaking_rows
from fedquilt.training.method import Method
from fedquilt.training.provenance import OF_ANNOTATORS, Provenance


def annotators_parts(method: Method) -> tuple[str, ...]:
    """The parts in which, by the method, only annotators of a class have a say in it."""
    return tuple(name for name, provenance in method.provenance.items() if _is_theirs(provenance))


def check_unannotated_rows(
    method: Method, update: Update, declared: Tensor, client: str, classes: Sequence[str] = ()
) -> None:
    """Raise RefusedUpdate where an update counts for classes that the client has not declared.

    The update's names and shapes must have been checked before. ``declared`` is (C,) bool;
    ``classes`` are their names, for the reason.
    """
    for name in annotators_parts(method):
        if name not in update:
            continue
        strange = (_has_say(update[name]) & ~declared).nonzero().flatten().tolist()
        if strange:
            found = ", ".join(repr(classes[c]) if classes else f"number {c}" for c in strange[:5])
            raise RefusedUpdate(
                f"client {client!r}, part {name!r}: it counts for {len(strange)} classes that the "
                f"client does not annotate: {found}"
            )


def _is_theirs(provenance: Provenance) -> bool:
    rules: Iterable[object] = provenance if isinstance(provenance, tuple) else (provenance,)
    return any(rule in OF_ANNOTATORS for rule in rules if isinstance(rule, str))


def _has_say(part: Part) -> Tensor:
    """(C,) bool: by its weight, or by any number in the class's row where there is none."""
    if isinstance(part, Mean):
        return speaking_rows(weight_of(part)).cpu()
    return torch.stack([speaking_rows(leaf).cpu() for _, leaf in leaves(part.value)]).any(0)
