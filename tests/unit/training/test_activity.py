"""Counts of what a method did, and the size of the run that its settings suit."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fedquilt.methods.cbafed import CBAFed
from fedquilt.methods.fedfixmatch import FedFixMatch
from fedquilt.methods.fedirm import FedIRM
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.methods.fednoro import FedNoRo
from fedquilt.methods.rscfed import RSCFed
from fedquilt.training.activity import ActivityTally, RunSize, most_in_a_round


@dataclass
class Held:
    known: Tensor


def size_of(*missing: tuple[int, ...], images: int = 100, rounds: int = 40) -> RunSize:
    """Clients of ``images`` images that lack so many labels per class."""
    masks = [torch.arange(images)[:, None] >= torch.tensor(counts) for counts in missing]
    return RunSize.of([Held(mask) for mask in masks], rounds)


def test_size_counts_images_that_lack_a_label():
    size = size_of((100, 0), (0, 40), rounds=7)
    assert size.images == (100, 100)
    assert size.missing == ((100, 0), (0, 40))
    assert sorted(size.gaps) == [40, 100]
    assert size.missing_per_image == 0.7  # 140 missing labels of 200 images
    assert size.sentence() == "2 clients with 100 images and 7 rounds"


def test_tally_adds_clients_and_starts_anew():
    tally = ActivityTally()
    for counts in ({"labels filled in": 3}, {"labels filled in": 4, "images mixed": 0}):
        tally.record(counts)
    assert tally.take() == {"labels filled in": 7, "images mixed": 0}
    assert tally.take() == {}


def test_most_in_a_round_keeps_what_was_always_zero():
    rounds = [{"mixed": 0}, {"mixed": 0, "filled": 5}, {"filled": 2}]
    assert most_in_a_round(rounds) == {"mixed": 0, "filled": 5}


def test_fedmlp_fills_in_as_much_as_in_the_paper_whatever_the_rounds():
    """40 rounds, 15 of them warm-up: 25 rounds do what 450 do in the paper."""
    suited = FedMLP().suited_to(size_of((100, 0)))
    assert suited["warmup_rounds"] == 15
    assert (1 - suited["negative_share"]) ** 25 == pytest.approx(0.995**450, rel=0.02)
    assert (1 - suited["positive_share"]) ** 25 == pytest.approx(0.99**450, rel=0.02)
    assert suited["rounding"] == "ceil"  # 100 * 0.086 < 100 tags in a round
    assert "rounding" not in FedMLP().suited_to(size_of((5000, 0), images=5000))


def test_fedmlp_keeps_the_papers_shares_for_a_run_of_its_length():
    suited = FedMLP().suited_to(size_of((20_000, 0), images=20_000, rounds=500))
    kept = {"warmup_rounds": 50, "negative_share": 0.005, "positive_share": 0.01}
    assert suited == kept  # 20,000 * 0.005 = 100 tags in a round
    fewer = FedMLP().suited_to(size_of((3000, 0), images=3000, rounds=500))
    assert fewer == {**kept, "rounding": "ceil"}  # 15 tags, before the learning degree


@pytest.mark.parametrize(
    ("method", "size", "reason"),
    [
        (FedMLP(), size_of((0, 0)), "every label is annotated"),
        (FedMLP(), size_of((100, 0)), "the warm-up of 50 rounds filled all 40 rounds"),
        (FedMLP(warmup_rounds=10), size_of((100, 0)), "0.01 of the at most 100 images"),
        (FedMLP(warmup_rounds=10, rounding="ceil"), size_of((100, 0)), "no class was learnt"),
        (CBAFed(), size_of((100, 0)), "the warm-up of 50 rounds filled all 40 rounds"),
        (CBAFed(warmup_rounds=1), size_of((100, 0)), "set method.threshold_range lower"),
        (FedFixMatch(), size_of((100, 90)), "missing labels (1.9 on average) predicted above 0.8"),
        (FedFixMatch(gate="entry"), size_of((9, 9)), "no missing label was predicted above 0.8"),
        (FedIRM(), size_of((9, 9), rounds=9), "the warm-up of 20 rounds filled all 9 rounds"),
    ],
)
def test_reason_names_what_to_change(method: FedMLP, size: RunSize, reason: str):
    assert reason in method.why_idle("labels filled in", size)


def test_other_methods_suit_short_runs_and_few_clients():
    few = size_of((50, 50, 50), (50, 50, 50), (50, 50, 50), images=60)
    assert CBAFed().suited_to(few) == {"warmup_rounds": 15}
    assert FedIRM().suited_to(few) == {"warmup_rounds": 15, "ramp_rounds": 20}
    assert FedNoRo().suited_to(few) == {"ramp_start": 0, "ramp_end": 39}
    assert FedFixMatch().suited_to(few) == {"gate": "entry"}  # 2.5 missing labels an image
    assert FedFixMatch().suited_to(size_of((50, 50))) == {}
    assert RSCFed().suited_to(few) == {"group_size": 2}
    left_out = "clients left out of each group"
    assert RSCFed().server_activity({}, few) == {left_out: 0}
    assert "a group of 3 is all 3 clients" in RSCFed().why_idle(left_out, few)
