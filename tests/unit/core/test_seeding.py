"""Seeds from names: equal on every machine, different for different names."""

from __future__ import annotations

import pytest
import torch

from fedquilt.core.seeding import generator_for, seed_for, seed_network_draws


def test_a_seed_never_changes():
    # blake2b of "int:7\x1fstr:client\x1fstr:site-0\x1fint:3", 8 bytes, without the lowest bit.
    # If this number changes, earlier runs can be neither repeated nor resumed.
    assert seed_for(7, "client", "site-0", 3) == 7978823465278386064


def test_seeds_fit_63_bits():
    seeds = [seed_for(number) for number in range(1000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62


def test_different_names_give_different_seeds():
    seeds = {
        seed_for(run, "client", f"site-{site}", round_)
        for run in range(5)
        for site in range(20)
        for round_ in range(20)
    }
    assert len(seeds) == 5 * 20 * 20


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ((1,), ("1",)),
        (("ab", "c"), ("a", "bc")),
        ((1, 23), (12, 3)),
        (("a", "b"), ("b", "a")),
        (("a",), ("a", "")),
        (("a", "b"), ("a,b",)),
        ((), ("",)),
        ((-1,), (1,)),
    ],
)
def test_names_are_kept_apart(one, two):
    assert seed_for(*one) != seed_for(*two)


def test_names_may_be_any_text():
    assert seed_for("Klinikum Süd", "病院") != seed_for("Klinikum Sud", "病院")


def test_generators_of_one_name_draw_the_same_numbers():
    first = torch.rand(5, generator=generator_for(7, "cohort", 0))
    assert torch.equal(first, torch.rand(5, generator=generator_for(7, "cohort", 0)))
    assert not torch.equal(first, torch.rand(5, generator=generator_for(7, "cohort", 1)))


def test_generators_do_not_touch_the_default_generator():
    before = torch.get_rng_state()
    torch.rand(5, generator=generator_for(0))
    assert torch.equal(before, torch.get_rng_state())


def test_network_draws_match_manual_seed():
    with torch.random.fork_rng(devices=[]):
        seed_network_draws(torch.device("cpu"), 7, "client")
        found = torch.rand(3)
        torch.manual_seed(seed_for(7, "client"))
        assert torch.equal(found, torch.rand(3))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_network_draws_on_a_gpu_match_manual_seed():
    with torch.random.fork_rng():
        seed_network_draws(torch.device("cuda"), 7, "client")
        found = torch.rand(3, device="cuda")
        torch.manual_seed(seed_for(7, "client"))
        assert torch.equal(found, torch.rand(3, device="cuda"))
