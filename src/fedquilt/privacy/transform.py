"""PayloadTransform: changes a client's messages before they leave; every engine applies it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from fedquilt.core.payload import Update
from fedquilt.data.client_data import ClientData
from fedquilt.training.method import Method, State


class PayloadTransform(Protocol):
    """Keeps the names, kinds, shapes and dtypes that the method declared."""

    def on_client(
        self, method: Method, data: ClientData, state: State, update: Update
    ) -> Update: ...

    def on_survey(self, method: Method, data: ClientData, answer: Update) -> Update: ...


def apply_transforms(
    transforms: Iterable[PayloadTransform],
    method: Method,
    data: ClientData,
    state: State,
    update: Update,
) -> Update:
    """Apply the transforms to a round's update; ``state`` is the method's state after the round."""
    for transform in transforms:
        update = transform.on_client(method, data, state, update)
    return update


def apply_survey_transforms(
    transforms: Iterable[PayloadTransform], method: Method, data: ClientData, answer: Update
) -> Update:
    """Apply the transforms to a survey's answer."""
    for transform in transforms:
        answer = transform.on_survey(method, data, answer)
    return answer
