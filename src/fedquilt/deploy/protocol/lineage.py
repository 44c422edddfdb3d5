"""Lineage: which broadcasts a study has sent so far, so that a site can check the next one.

Every request to train names the hashes of all broadcasts before it. A site compares them with those
it has received: a server that swaps a network, or tells two sites two histories, is refused. A
study that goes back to an earlier round says so, with the reason.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedquilt.core.tree import Tree
from fedquilt.deploy.protocol.message_bounds import BadMessage
from fedquilt.deploy.protocol.messages import as_safetensors, empty_branches

UNKNOWN = ""  # in place of a hash, for a round that was never sent to this site
MAX_ROLLBACKS = 1_000
MAX_REASON = 300


@dataclass(frozen=True)
class Rollback:
    """A return to the model after an earlier round."""

    to_round: int
    reason: str


@dataclass(frozen=True)
class Lineage:
    """The hashes of the broadcasts of rounds 0, 1, ... and the times the study went back."""

    digests: tuple[str, ...]
    rollbacks: tuple[Rollback, ...] = ()

    def to_fact(self) -> dict[str, Any]:
        went_back = [[each.to_round, each.reason] for each in self.rollbacks]
        return {"digests": list(self.digests), "rollbacks": went_back}


def lineage_in(facts: Mapping[str, Any]) -> Lineage:
    """Return the lineage in a request's facts; raise BadMessage if there is none."""
    fact = facts.get("lineage")
    digests, rollbacks = (
        (fact.get("digests"), fact.get("rollbacks")) if isinstance(fact, dict) else (None, None)
    )
    if not isinstance(digests, list) or not all(_is_digest(each) for each in digests):
        raise BadMessage("the request does not name the broadcasts before it")
    if not isinstance(rollbacks, list) or len(rollbacks) > MAX_ROLLBACKS:
        raise BadMessage("the request does not say whether the study went back")
    return Lineage(tuple(digests), tuple(_rollback(each) for each in rollbacks))


def tree_digest(tree: Tree) -> str:
    """Return a hash of names, shapes, dtypes and bits."""
    digest = hashlib.sha256("\n".join(sorted(empty_branches(tree))).encode())
    for chunk in as_safetensors(tree):
        digest.update(chunk)
    return digest.hexdigest()


def chained(digests: Sequence[str]) -> str:
    """Return one hash of all these broadcasts in their order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _is_digest(found: object) -> bool:
    return isinstance(found, str) and len(found) in (0, 64)


def _rollback(found: object) -> Rollback:
    if isinstance(found, list) and len(found) == 2:
        to_round, reason = found
        if type(to_round) is int and to_round >= 0 and isinstance(reason, str):
            return Rollback(to_round, reason[:MAX_REASON])
    raise BadMessage("the request does not say to which round the study went back, and why")
