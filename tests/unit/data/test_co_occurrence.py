"""Label co-occurrence from keyed hashes, which reveal nothing about an image."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, tensor

from fedquilt.core.errors import UserError
from fedquilt.data.client_data import ClientData
from fedquilt.data.co_occurrence import CODE_BYTES, coded_positives, correlation_of, joint_counts

PICTURES = torch.arange(6 * 4, dtype=torch.uint8).reshape(6, 1, 2, 2)  # six different images
TRUTH = tensor([[1, 0, 0], [1, 1, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])


def client(
    labels: Tensor, known: Tensor | None = None, indices: Tensor | None = None, secret: bytes = b"s"
) -> ClientData:
    return ClientData(
        name="site",
        images=PICTURES,
        indices=torch.arange(len(labels)) if indices is None else indices,
        labels=labels.to(torch.uint8),
        known=torch.ones_like(labels, dtype=torch.bool) if known is None else known,
        secret=secret,
    )


def owner(column: int) -> ClientData:
    """A client that holds the positives of one class and knows nothing else."""
    rows = TRUTH[:, column].nonzero().flatten()
    known = torch.arange(3).repeat(len(rows), 1) == column
    return client(TRUTH[rows], known, rows)


def test_joint_counts_equal_those_of_the_labels() -> None:
    answers = [coded_positives(owner(column)) for column in range(3)]
    expected = TRUTH.T @ TRUTH
    assert expected.tolist() == [[3, 2, 0], [2, 3, 0], [0, 0, 1]]
    assert torch.equal(joint_counts(answers, 3), expected)
    assert torch.equal(joint_counts(reversed(answers), 3), expected)
    # One client that has it all, in any order, says the same.
    turned = client(TRUTH.flip(0), indices=torch.arange(6).flip(0))
    assert torch.equal(joint_counts([coded_positives(turned)], 3), expected)


def test_only_annotated_positives_are_sent() -> None:
    known = torch.zeros(6, 3, dtype=torch.bool)
    known[1:4, 0] = True  # positives of class 0 at images 1 and 2; image 3 is a negative
    answer = coded_positives(client(TRUTH, known))
    assert answer["codes"].shape == (2, CODE_BYTES)
    assert answer["positives"].tolist() == [[True, False, False]] * 2


def test_duplicates_count_once_with_all_their_labels() -> None:
    labels = tensor([[1, 0, 0], [0, 1, 0], [1, 0, 0]])
    known = labels.to(torch.bool)
    answer = coded_positives(client(labels, known, tensor([4, 4, 4])))
    assert answer["positives"].tolist() == [[True, True, False]]
    assert joint_counts([answer], 3).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 0]]


def test_codes_are_sorted_and_of_the_secret() -> None:
    one, other = (coded_positives(client(TRUTH, secret=key))["codes"] for key in (b"s", b"t"))
    assert one.dtype == torch.uint8
    listed = [bytes(code.tolist()) for code in one]
    assert listed == sorted(listed)
    assert not set(listed) & {bytes(code.tolist()) for code in other}


def test_a_code_is_an_hmac_of_the_raw_pixels() -> None:
    # printf '\004\005\006\007' | openssl dgst -sha256 -hmac s, the first 16 bytes
    answer = coded_positives(client(TRUTH[1:2], indices=tensor([1])))
    assert bytes(answer["codes"][0].tolist()).hex() == "6036e4dab2308f52b6affea98c428141"


def test_a_client_without_positives_sends_none() -> None:
    answer = coded_positives(client(torch.zeros(6, 3)))
    assert answer["codes"].shape == (0, CODE_BYTES)
    assert answer["positives"].shape == (0, 3)
    assert joint_counts([answer], 3).tolist() == [[0] * 3] * 3


def test_without_a_secret_nothing_is_hashed() -> None:
    with pytest.raises(UserError, match=r"client 'site' has no secret: .* give all clients the"):
        coded_positives(replace(client(TRUTH), secret=b""))


def test_correlations_by_hand() -> None:
    counts = tensor([[8, 2, 0, 0], [2, 4, 4, 0], [0, 4, 4, 0], [0, 0, 0, 0]])
    # Over the rarer class: 2 / 4 and 4 / 4. Mean shares: (2/8 + 2/4) / 2 and (4/4 + 4/4) / 2.
    overlap = correlation_of(counts, "overlap")
    assert overlap.tolist() == [[0, 0.5, 0, 0], [0.5, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    conditional = correlation_of(counts, "conditional")
    assert conditional[0].tolist() == pytest.approx([0, 0.375, 0, 0])
    assert torch.equal(conditional, conditional.T)
    assert conditional[1, 2].item() == 1.0
