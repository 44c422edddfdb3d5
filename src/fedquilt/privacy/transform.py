"""PayloadTransform: what a site does to its messages before they leave; any engine applies it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fedquilt.core.payload import Update
from fedquilt.data.client_data import ClientData
from fedquilt.training.method import Method, State


class PayloadTransform(Protocol):
    """Names, kinds, shapes and dtypes stay as the method declared them."""

    def on_client(
        self, method: Method, data: ClientData, state: State, update: Update
    ) -> Update: ...

    def on_survey(self, method: Method, data: ClientData, answer: Update) -> Update: ...


def released(
    transforms: Iterable[PayloadTransform],
    method: Method,
    data: ClientData,
    state: State,
    update: Update,
) -> Update:
    """A round's update as it leaves; ``state`` is what the method keeps after the round."""
    for transform in transforms:
        update = transform.on_client(method, data, state, update)
    return update


def released_survey(
    transforms: Iterable[PayloadTransform], method: Method, data: ClientData, answer: Update
) -> Update:
    for transform in transforms:
        answer = transform.on_survey(method, data, answer)
    return answer
