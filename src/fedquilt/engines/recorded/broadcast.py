"""A round's broadcast on the device: what all clients get, and what each gets for itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor

from fedquilt.method import State
from fedquilt.payload import PerClient, addressed, shared_and_own
from fedquilt.tree import Tree, tree_map


class Broadcast:
    """One object a round, so that a slot knows whether it has taken in ``shared`` already.

    Args:
        laid_out: a tensor on the device, in memory as in the slots.
    """

    def __init__(
        self, payload: Mapping[str, Tree | PerClient], laid_out: Callable[[Tensor], Tensor]
    ) -> None:
        self._laid_out = laid_out
        shared, self._own = shared_and_own(payload)
        self.shared: State = tree_map(laid_out, shared)

    def own(self, client: str) -> State:
        """What nobody else gets."""
        parts: State = tree_map(self._laid_out, addressed(self._own, client))
        return parts
