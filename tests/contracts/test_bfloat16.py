"""In bfloat16 every method trains to the same bits as by autocast alone."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from support.tiny_federation import METHOD_NAMES, make_federation, make_method

from fedquilt.core.tree import same_bits
from fedquilt.training import client
from fedquilt.training import client_step as local_steps


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_weights_cast_together_are_the_ones_of_autocast(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = make_method(name)
    method = replace(method, training=replace(method.training, precision="bfloat16"))
    federation = make_federation(rounds=2).fitted(method)
    found = federation.train(method)
    monkeypatch.setattr(local_steps, "cast_parameters", lambda network, weights: nullcontext())
    monkeypatch.setattr(client, "cast_functional", lambda network, lent, dtype: nullcontext())
    assert same_bits(found, federation.train(method))
