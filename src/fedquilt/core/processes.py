"""Processes: how several processes of one run share clients and learn what the others have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from fedquilt.core.tree import Tree


class Processes(Protocol):
    """The processes that run the same rounds side by side, each with clients of its own.

    All of them call these functions in the same order, and all get the same answer.
    """

    @property
    def number(self) -> int: ...  # of this process; 0 is the first, which alone writes results

    @property
    def count(self) -> int: ...

    def share(self, facts: Any) -> list[Any]:
        """Return the plain data (as in JSON) of every process, in their order."""

    def share_trees(self, tree: Mapping[str, Tree]) -> list[Any]:
        """Return the tree of every process, on the host."""

    def add_up(self, tree: Tree) -> Any:
        """Return the sum of the processes' trees, which have the same names, shapes and dtypes."""


class OneProcess:
    """The only process of a run."""

    number = 0
    count = 1

    def share(self, facts: Any) -> list[Any]:
        return [facts]

    def share_trees(self, tree: Mapping[str, Tree]) -> list[Any]:
        return [tree]

    def add_up(self, tree: Tree) -> Any:
        return tree


ONE_PROCESS = OneProcess()


def is_first(processes: Processes) -> bool:
    return processes.number == 0


def own_clients(
    processes: Processes, clients: Iterable[str], population: Iterable[str]
) -> list[str]:
    """Return those of ``clients`` that this process runs; a client never changes its process."""
    if processes.count == 1:
        return list(clients)
    order = {name: place for place, name in enumerate(sorted(population))}
    return [name for name in clients if order[name] % processes.count == processes.number]
