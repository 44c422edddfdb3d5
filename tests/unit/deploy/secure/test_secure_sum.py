"""Secure sums equal plain ones whoever gets lost, and what a site refuses."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy import stats
from support.secure_sums import STEPS, Outcome, attempt_of, make_secure_sites, secure_sum
from torch import Tensor

from fedquilt.deploy.secure import shamir
from fedquilt.deploy.secure.masks import Attempt, PublicKeys, add_pad
from fedquilt.deploy.secure.server_half import SumAborted
from fedquilt.deploy.secure.site_half import RefusedSum, SecureSite

NAMES = ("east", "north", "south", "west")


def _vectors(names: tuple[str, ...], length: int, seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randint(-(2**62), 2**62, (length,), generator=generator, dtype=torch.int64)
        for name in names
    }


def _plain(vectors: dict[str, Tensor], names: tuple[str, ...]) -> Tensor:
    total = torch.zeros_like(next(iter(vectors.values())))
    for name in names:
        total += vectors[name]  # modulo 2^64
    return total


def _names(count: int) -> tuple[str, ...]:
    return tuple(f"site-{number:02}" for number in range(count))


def test_thresholds() -> None:
    counts = {3: 2, 4: 3, 5: 4, 10: 7, 30: 20, 50: 34}
    assert {n: attempt_of(_names(n)).threshold for n in counts} == counts


@pytest.mark.parametrize(("count", "step"), [*itertools.product(range(3, 11), STEPS)])
def test_a_sum_is_exact_whoever_is_lost_or_is_aborted_by_name(count: int, step: str) -> None:
    """Loses 0, 1, ... sites before each step; below the threshold nothing is unmasked."""
    names, choose = _names(count), random.Random(count)
    needed = max(-(-2 * count // 3), 3)
    sites, numbers = make_secure_sites(names), itertools.count()
    for lost_count in range(count - needed + 2):
        vectors = _vectors(names, 5, lost_count)
        lost = dict.fromkeys(choose.sample(names, lost_count), step)
        attempt = attempt_of(names, subject=f"train {next(numbers)}")
        if count - lost_count < needed:
            with pytest.raises(SumAborted, match=f"{count - lost_count} of {count} sites"):
                secure_sum(sites, vectors, attempt, lost)  # type: ignore[arg-type]
            continue
        found = secure_sum(sites, vectors, attempt, lost)  # type: ignore[arg-type]
        left = names if step == "unmask" else tuple(n for n in names if n not in lost)
        assert found.survivors == left
        assert torch.equal(found.total, _plain(vectors, left))


def test_sites_lost_at_different_steps() -> None:
    names = _names(10)
    lost = {names[0]: "keys", names[4]: "shares", names[9]: "train"}
    vectors = _vectors(names, 300_000, 1)  # more than one chunk of a pad
    found = secure_sum(make_secure_sites(names), vectors, attempt_of(names), lost)  # type: ignore[arg-type]
    left = tuple(name for name in names if name not in lost)
    assert torch.equal(found.total, _plain(vectors, left))


@pytest.mark.slow
def test_a_thousand_random_runs() -> None:
    choose = random.Random(2)
    aborted = 0
    for run in range(1_000):
        names = _names(choose.randrange(3, 11))
        vectors = _vectors(names, 4, run)
        lost = {name: choose.choice(STEPS) for name in names if choose.random() < 0.15}
        try:
            found = secure_sum(make_secure_sites(names), vectors, attempt_of(names), lost)
        except SumAborted:
            aborted += 1
            assert len(names) - len(lost) < max(-(-2 * len(names) // 3), 3)
            continue
        assert torch.equal(found.total, _plain(vectors, found.survivors))
    assert 0 < aborted < 500


@pytest.mark.parametrize("is_zero", [True, False])
def test_what_the_server_sees_of_one_site_is_uniform(is_zero: bool) -> None:
    """Bytes of a masked vector, 100 times: chi-square per byte position, and p itself uniform."""
    names, length = _names(3), 1_024
    sites, chances = make_secure_sites(names), []
    for run in range(100):
        vectors = _vectors(names, length, 0)
        if is_zero:
            vectors = {name: torch.zeros_like(vector) for name, vector in vectors.items()}
        attempt = attempt_of(names, subject=f"train {run}")
        seen = secure_sum(sites, vectors, attempt).sent[names[1]]
        columns = seen.view(torch.uint8).reshape(-1, 8).T
        chances += [stats.chisquare(column.bincount(minlength=256)).pvalue for column in columns]
    assert stats.kstest(chances, "uniform").pvalue > 0.01 / 2  # of two tests


def test_pads_of_chunks_are_one_stream() -> None:
    whole, parts = (torch.zeros(400_000, dtype=torch.int64) for _ in range(2))
    add_pad(whole, b"k" * 32, 1)
    add_pad(parts[:131_072], b"k" * 32, 1)
    assert torch.equal(whole[:131_072], parts[:131_072])
    assert len(set(whole.tolist())) == len(whole)  # no block comes twice
    add_pad(whole, b"k" * 32, -1)
    assert not whole.any()


def test_the_pad_of_aes_256_in_counter_mode() -> None:
    """NIST SP 800-38A, F.5.5, with its key; its counter block is not ours, so of zeros: FIPS 197.

    AES-256 of 16 zero bytes under a zero key is dc95c078a2408989ad48a21492842087.
    """
    found = torch.zeros(2, dtype=torch.int64)
    add_pad(found, bytes(32), 1)
    assert found.view(torch.uint8).numpy().tobytes().hex() == "dc95c078a2408989ad48a21492842087"


# What a site refuses.


class Begun:
    """Four sites up to their masked vectors."""

    def __init__(self) -> None:
        self.sites = make_secure_sites(NAMES)
        self.attempt = attempt_of(NAMES)
        self.vectors = _vectors(NAMES, 3, 0)
        self.keys = {name: self.sites[name].keys(self.attempt) for name in NAMES}

    def exchange(self) -> dict[str, dict[str, bytes]]:
        sent = {name: self.sites[name].shares(self.attempt, self.keys) for name in NAMES}
        return {
            name: {other: texts[name] for other, texts in sent.items() if other != name}
            for name in NAMES
        }

    def masked(self) -> Begun:
        for name, inbox in self.exchange().items():
            self.sites[name].mask(self.attempt, self.vectors[name], inbox)
        return self

    @property
    def north(self) -> SecureSite:
        return self.sites["north"]


def test_a_second_unmasking_with_other_survivors_is_refused() -> None:
    begun = Begun().masked()
    first = begun.north.unmask(begun.attempt, NAMES)
    assert begun.north.unmask(begun.attempt, NAMES) == first  # the same is
    with pytest.raises(RefusedSum, match="already unmasked for other survivors"):
        begun.north.unmask(begun.attempt, ("east", "north", "west"))


def test_also_in_another_attempt() -> None:
    begun = Begun().masked()
    begun.north.unmask(begun.attempt, NAMES)
    begun.attempt = attempt_of(NAMES, number=1)
    begun.keys = {name: begun.sites[name].keys(begun.attempt) for name in NAMES}
    begun.masked()
    with pytest.raises(RefusedSum, match="the difference of the two sums"):
        begun.north.unmask(begun.attempt, ("east", "north", "west"))
    begun.north.unmask(begun.attempt, NAMES)


def test_no_site_gives_both_shares_of_another() -> None:
    begun = Begun().masked()
    shares = begun.north.unmask(begun.attempt, ("east", "north", "west"))
    assert set(shares) == set(NAMES)
    own, key = begun.north._secrets.shares["south"]  # type: ignore[union-attr]
    assert shares["south"] == key != own  # lost: its key, not its own pad
    assert shares["east"] == begun.north._secrets.shares["east"][0]  # type: ignore[union-attr]


def test_too_few_survivors_are_refused() -> None:
    begun = Begun().masked()
    with pytest.raises(RefusedSum, match="only 2 sites survived, at least 3"):
        begun.north.unmask(begun.attempt, ("east", "north"))
    with pytest.raises(RefusedSum, match="no shares"):
        begun.north.unmask(begun.attempt, (*NAMES, "nowhere"))


def test_a_swapped_key_is_refused() -> None:
    begun = Begun()
    forged = Ed25519PrivateKey.generate()
    keys = begun.keys["south"]
    wrong = PublicKeys(keys.sealing, keys.masking, forged.sign(b"x"))
    for bad in (wrong, replace(keys, masking=begun.keys["west"].masking), begun.keys["west"]):
        begun.keys["south"] = bad
        with pytest.raises(RefusedSum, match="'south' are not signed by it"):
            begun.north.shares(begun.attempt, begun.keys)


def test_keys_of_another_round_attempt_or_cohort_are_refused() -> None:
    for other in (
        attempt_of(NAMES, subject="train 1"),
        attempt_of(NAMES, number=1),
        attempt_of((*NAMES, "extra")),
    ):
        begun = Begun()
        if "extra" not in other.cohort:
            begun.keys["south"] = begun.sites["south"].keys(other)
            with pytest.raises(RefusedSum, match="not signed"):
                begun.north.shares(begun.attempt, begun.keys)
        with pytest.raises(RefusedSum, match="not begun here"):
            begun.north.shares(other, begun.keys)


def test_a_replayed_attempt_is_refused() -> None:
    begun = Begun()
    with pytest.raises(RefusedSum, match="attempt 0 of train 0 was already used"):
        begun.north.keys(begun.attempt)
    begun.north.keys(attempt_of(NAMES, number=3))
    with pytest.raises(RefusedSum, match="attempt 2 of train 0"):
        begun.north.keys(attempt_of(NAMES, number=2))


@pytest.mark.parametrize(
    ("attempt", "reason"),
    [
        (Attempt("1" * 64, "train 0", 0, NAMES), "another study"),
        (attempt_of(("east", "south", "west")), "this one among them"),
        (attempt_of((*NAMES, "stranger")), "of no study"),
        (attempt_of(("east", "north")), "needs 3 sites"),
        (replace(attempt_of(NAMES), cohort=(*NAMES, "north")), "sorted list"),
    ],
)
def test_an_attempt_that_cannot_be_right_is_refused(attempt: Attempt, reason: str) -> None:
    with pytest.raises(RefusedSum, match=reason):
        make_secure_sites(NAMES)["north"].keys(attempt)


def test_a_second_vector_is_refused() -> None:
    begun = Begun()
    inbox = begun.exchange()["north"]
    begun.north.mask(begun.attempt, begun.vectors["north"], inbox)
    with pytest.raises(RefusedSum, match="already masked"):
        begun.north.mask(begun.attempt, begun.vectors["north"] + 1, inbox)


def test_shares_changed_on_their_way_are_refused() -> None:
    begun = Begun()
    inbox = begun.exchange()["north"]
    inbox["west"] = inbox["west"][:-1] + bytes([inbox["west"][-1] ^ 1])
    with pytest.raises(RefusedSum, match="shares of 'west' were changed"):
        begun.north.mask(begun.attempt, begun.vectors["north"], inbox)


def test_a_class_with_too_few_annotators_is_refused_by_the_site() -> None:
    begun = Begun().masked()

    def check(attempt: Attempt, names: object) -> None:
        raise RefusedSum("class 'mel' would come from 2 sites")

    begun.north._check_survivors = check  # type: ignore[assignment]
    with pytest.raises(RefusedSum, match="'mel' would come from 2"):
        begun.north.unmask(begun.attempt, NAMES)
    assert begun.north._record.survivors("train 0") is None


def test_a_wrong_share_does_not_give_a_sum() -> None:
    names = _names(4)
    sites, vectors = make_secure_sites(names), _vectors(_names(4), 3, 0)
    found: Outcome = secure_sum(sites, vectors, attempt_of(names))
    shares = dict(found.sum._shares)
    bad = {**shares[names[0]], names[1]: (shamir.PRIME - 5).to_bytes(66)}
    found.sum._shares[names[0]] = bad
    with pytest.raises(SumAborted, match="do not fit together"):
        found.sum.unmasked()
