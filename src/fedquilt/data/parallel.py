"""Map a function over many items with threads, in order, with a progress bar on terminals."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

IN_FLIGHT = 256  # items submitted to the threads at a time, to bound memory

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_parallel(
    work: Callable[[Item], Result],
    items: Sequence[Item],
    title: str,
    *,
    count_of: Callable[[Item], int] = lambda item: 1,
    in_flight: int = IN_FLIGHT,
) -> Iterator[Result]:
    """Yield the results of ``work`` in the order of ``items``, computed by threads.

    ``count_of`` gives an item's contribution to the progress bar, e.g. the images of a batch.
    """
    total = sum(count_of(item) for item in items)
    with ThreadPoolExecutor(os.cpu_count()) as pool, progress_bar(title, total) as advance:
        try:
            # Each result that is taken makes room for an item: the threads work on meanwhile.
            waiting = deque(pool.submit(work, item) for item in items[:in_flight])
            for place, item in enumerate(items):
                result = waiting.popleft().result()
                if place + in_flight < len(items):
                    waiting.append(pool.submit(work, items[place + in_flight]))
                advance(count_of(item))
                yield result
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # the caller may stop early


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal, nothing elsewhere; yields a function that advances it."""
    console = Console(stderr=True)
    shown = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    progress = Progress(
        *shown, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    )
    with progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.advance(task, count)
