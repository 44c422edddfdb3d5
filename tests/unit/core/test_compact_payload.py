"""Compact payloads: numbers worked out by hand, rounding that is right on average, feedback."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedquilt.core.compact_payload import PayloadOptions, compacted, decode, encode
from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Sum, Update, update_bytes
from fedquilt.core.tree import Tree, byte_count, flatten, same_bits
from fedquilt.core.update_checks import RefusedUpdate, check_update

INT8 = PayloadOptions(numbers="int8")
BFLOAT16 = PayloadOptions(numbers="bfloat16")
TOP = PayloadOptions(top_share=0.02)


def _draws(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _decoded(leaf: Tensor, options: PayloadOptions, seed: int = 0) -> Tensor:
    return decode(encode(leaf, options, _draws(seed)), leaf)


def _of(tree: Tree, path: str) -> Tensor:
    return flatten(tree)[path]


def test_int8_has_a_scale_for_each_row() -> None:
    # 127 / 127 = 1 and 0.0127 / 127 = 0.0001 are the steps; all numbers are multiples of them.
    leaf = torch.tensor([[127.0, -64.0, 0.0], [0.0127, -0.0064, 0.0001]])
    encoded = encode(leaf, INT8, _draws())
    torch.testing.assert_close(encoded["scale"], torch.tensor([1.0, 0.0001]))
    assert encoded["numbers"].dtype == torch.int8
    assert encoded["numbers"][0].tolist() == [127, -64, 0]
    assert byte_count(encoded) == 6 + 2 * 4
    assert torch.equal(decode(encoded, leaf)[0], leaf[0])


@pytest.mark.parametrize("options", [INT8, BFLOAT16])
def test_rounding_is_right_on_average_and_off_by_less_than_a_step(options: PayloadOptions) -> None:
    leaf = torch.linspace(-1, 1, 101)
    step = 1 / 127 if options.numbers == "int8" else 2.0**-8
    decoded = torch.stack([_decoded(leaf, options, seed) for seed in range(2000)])
    assert float((decoded - leaf).abs().max()) <= step
    # The mean of 2000 errors below a step has a deviation below step / 2 / sqrt(2000) = step / 89.
    assert float((decoded.mean(0) - leaf).abs().max()) < step / 89 * 5
    assert len(decoded[:, 3].unique()) == 2  # -0.94 lies between two numbers, and both are drawn


def test_bfloat16_keeps_what_it_can_write_down() -> None:
    leaf = torch.tensor([1.0, -1.5, 0.0, 2.0**-100, 2.0**100])
    assert torch.equal(_decoded(leaf, BFLOAT16), leaf)


def test_top_share_sends_the_largest_and_where_they_are() -> None:
    leaf = torch.zeros(10, 10)
    leaf[3, 4], leaf[9, 9], leaf[0, 0] = -5.0, 4.0, 3.0
    encoded = encode(leaf, TOP, _draws())
    assert encoded["numbers"].tolist() == [-5.0, 4.0]
    assert encoded["places"].tolist() == [34, 99]  # 8 bytes, for which a bit each would take 13
    decoded = decode(encoded, leaf)
    assert float(decoded[0, 0]) == 0
    assert decoded.abs().sum() == 9
    many = encode(leaf, PayloadOptions(top_share=0.5), _draws())
    assert many["chosen"].nbytes == 13
    assert torch.equal(decode(many, leaf), leaf)


def test_bytes_are_those_that_travel() -> None:
    update: Update = {"body": Mean({"w": torch.randn(100, 10), "b": torch.randn(10)}, 3.0)}
    assert update_bytes(update) == 1010 * 4 + 8
    found, _ = compacted(update, {}, INT8, 0)
    assert update_bytes(found) == 1000 + 100 * 4 + 10 * 4 + 8  # a small tensor goes as it is
    both = PayloadOptions(numbers="int8", top_share=0.1)
    found, _ = compacted(update, {}, both, 0)
    assert update_bytes(found) == 100 + 4 + 125 + 10 * 4 + 8  # 1000 bits say which


def test_feedback_sends_everything_in_the_end() -> None:
    """What was sent and what is still missing add up to all changes, whatever is left out."""
    options = PayloadOptions(numbers="int8", top_share=0.1)
    change, sent = torch.randn(40, 10, generator=_draws()), torch.zeros(40, 10)
    left: dict[str, Tree] = {}
    for round_index in range(30):
        update: Update = {"body": Mean({"w": change}, 1.0)}
        found, left = compacted(update, left, options, round_index)
        sent += _of(found["body"].value, "w")
        torch.testing.assert_close(
            sent + _of(left["body"], "w"), (round_index + 1) * change, rtol=1e-4, atol=1e-4
        )
    forgetful = PayloadOptions(numbers="int8", top_share=0.1, error_feedback=False)
    found, nothing = compacted({"body": Mean({"w": change}, 1.0)}, {}, forgetful, 0)
    assert nothing == {}
    without_feedback = float((_of(found["body"].value, "w") - change).norm())
    assert float((sent / 30 - change).norm()) < 0.5 * without_feedback


def test_a_row_without_weight_takes_no_place_and_is_not_kept() -> None:
    rows = torch.zeros(10, 10)
    rows[0], rows[1, 0] = 100.0, 1.0
    weight = torch.tensor([0.0] + [1.0] * 9, dtype=torch.float64)
    found, left = compacted({"head": Mean({"w": rows}, weight)}, {}, TOP, 0)
    assert float(_of(found["head"].value, "w")[1, 0]) == 1.0
    assert float(_of(found["head"].value, "w")[0].abs().sum()) == 0
    assert float(_of(left["head"], "w").abs().sum()) == 0


def test_other_parts_go_as_they_are() -> None:
    update: Update = {
        "control": Sum({"w": torch.randn(100)}),
        "buffers": Mean({"v": torch.randn(100)}, 1),
    }
    found, left = compacted(update, {}, INT8, 0)
    assert left == {}
    assert all(same_bits(found[name].value, part.value) for name, part in update.items())


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("options", [INT8, BFLOAT16, TOP])
def test_a_number_that_is_not_finite_is_still_refused(
    value: float, options: PayloadOptions
) -> None:
    leaf = torch.ones(100)
    leaf[5] = value
    expected: Update = {"body": Mean({"w": torch.zeros(100)}, 0.0)}
    found, _ = compacted({"body": Mean({"w": leaf}, 1.0)}, {}, options, 0)
    with pytest.raises(RefusedUpdate, match="part 'body', 'w': holds NaN or infinite"):
        check_update(found, expected, "site-0")


def test_an_impossible_share_is_refused() -> None:
    with pytest.raises(UserError, match="above 0 and at most 1, found 0"):
        PayloadOptions(top_share=0.0)
