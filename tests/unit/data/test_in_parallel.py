"""in_parallel(): order, bounded work ahead, and a caller that stops."""

from __future__ import annotations

import threading

import pytest

from fedquilt.data.parallel import in_parallel


def test_results_come_in_order():
    assert list(in_parallel(lambda item: item**2, range(100), "", in_flight=7)) == [
        item**2 for item in range(100)
    ]


def test_at_most_so_many_items_are_ahead_of_the_caller():
    done: list[int] = []
    results = in_parallel(done.append, range(50), "", in_flight=4)
    next(results)
    # The first result made room for item 4; nothing further may have been started.
    assert set(done) <= {0, 1, 2, 3, 4}
    assert len(list(results)) == 49
    assert sorted(done) == list(range(50))


def test_work_goes_on_while_the_caller_is_busy():
    """Item 3 was submitted when result 2 was taken, so it ends while the caller holds that."""
    ended = [threading.Event() for _ in range(4)]
    results = in_parallel(lambda item: ended[item].set(), range(4), "", in_flight=1)
    for place in range(3):
        next(results)
        assert ended[place + 1].wait(timeout=10)


def test_an_error_reaches_the_caller():
    with pytest.raises(ZeroDivisionError):
        list(in_parallel(lambda item: 1 // item, [1, 0, 1], ""))
