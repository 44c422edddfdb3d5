"""Which of many classes or sites a table or picture shows, so that it can be read at any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.table import Table
from rich.text import Text

MOST = 40  # rows of a table, lines or rows of a picture

Item = TypeVar("Item")


@dataclass(frozen=True)
class Ends(Generic[Item]):
    """All items in their order or, of too many, the best and the worst of them."""

    best: list[Item]
    omitted: int
    worst: list[Item]

    @property
    def shown(self) -> list[Item]:
        return [*self.best, *self.worst]


def best_and_worst(
    items: Sequence[Item], value: Callable[[Item], float | None], most: int = MOST
) -> Ends[Item]:
    """Return at most ``most`` items, largest values first; items without a value come last."""
    if len(items) <= most:
        return Ends(list(items), 0, [])
    valued = [(value(item), item) for item in items]
    ranked = [item for found, item in sorted(valued, key=_largest_first) if found is not None]
    if len(ranked) <= most:
        without = [item for found, item in valued if found is None]
        return Ends([*ranked, *without[: most - len(ranked)]], len(items) - most, [])
    half = most // 2
    return Ends(ranked[: most - half], len(items) - most, ranked[-half:])


def _largest_first(pair: tuple[float | None, Any]) -> float:
    return -(pair[0] or 0.0)


def fill(
    table: Table,
    rows: Sequence[Item],
    cells: Callable[[Item], Sequence[str | Text]],
    value: Callable[[Item], float | None],
    where: str,
) -> None:
    """Add the rows to the table; of too many the best and the worst, and ``where`` the rest is."""
    ends = best_and_worst(rows, value)
    for row in ends.best:
        table.add_row(*cells(row))
    if ends.omitted:
        table.add_row(Text(f"... {ends.omitted:,} more: {where}", style="dim"))
    for row in ends.worst:
        table.add_row(*cells(row))
