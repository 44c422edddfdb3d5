"""Engine: the seam between the server's loop and wherever the clients are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from fedquilt.method import Method, State
from fedquilt.totals import Totals


class Engine(Protocol):
    def survey(self, method: Method) -> Totals: ...

    def exchange(
        self, method: Method, payload: State, round_index: int, cohort: Sequence[str]
    ) -> Totals: ...
