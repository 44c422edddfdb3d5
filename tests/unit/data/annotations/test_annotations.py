"""Annotation rules: the number of classes per client, and an annotator for every class."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from fedquilt.core.errors import UserError
from fedquilt.core.registry import find
from fedquilt.data.annotations import ANNOTATIONS
from fedquilt.data.annotations.rules import Annotation, Full, Identified, Listed, Missing, Recorded


def names(kind: str, count: int) -> tuple[str, ...]:
    return tuple(f"{kind} {number}" for number in range(count))


def mask_of(annotation: Annotation, clients: int, classes: int, seed: int = 0) -> Tensor:
    mask = annotation.mask(names("client", clients), names("class", classes), seed)
    assert mask.shape == (clients, classes)
    assert mask.dtype == torch.bool
    return mask


def test_the_table_names_each_rule_once() -> None:
    found = {find("annotation", ANNOTATIONS, name) for name in ANNOTATIONS}
    assert found == {Full, Identified, Listed, Missing, Recorded}


def test_full_and_recorded_hide_nothing() -> None:
    assert mask_of(Full(), 3, 4).all()
    assert mask_of(Recorded(), 3, 4).all()
    assert Full().needs_complete_data
    assert not Recorded().needs_complete_data


# FedMLP's settings, then more clients than classes and fewer clients than classes.
SETTINGS = [(5, 5, m) for m in (1, 2, 3, 4)] + [(8, 8, m) for m in (1, 3, 5, 7)]
SETTINGS += [(9, 4, 3), (3, 7, 4), (4, 14, 10)]


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize(("clients", "classes", "missing"), SETTINGS)
def test_missing_gives_exact_rows_and_covers_every_class(
    clients: int, classes: int, missing: int, balanced: bool
) -> None:
    for seed in range(20):
        mask = mask_of(Missing(missing=missing, balanced=balanced), clients, classes, seed)
        assert (mask.sum(1) == classes - missing).all()
        assert (mask.sum(0) >= 1).all()
        if balanced:
            assert mask.sum(0).max() - mask.sum(0).min() <= 1


def test_missing_gives_classes_different_numbers_of_annotators_unless_balanced() -> None:
    spreads = [
        int(sums.max() - sums.min())
        for seed in range(20)
        for sums in [mask_of(Missing(missing=3), 8, 8, seed).sum(0)]
    ]
    assert max(spreads) > 1


def test_missing_nothing_is_full_and_one_to_one_is_the_diagonal() -> None:
    assert mask_of(Missing(missing=0), 5, 5).all()
    diagonal = mask_of(Missing(missing=4, one_to_one=True), 5, 5)
    assert torch.equal(diagonal, torch.eye(5, dtype=torch.bool))


def test_missing_refuses_impossible_settings() -> None:
    with pytest.raises(UserError, match="3 clients with 2 classes each reach at most 6 of the 7"):
        mask_of(Missing(missing=5), 3, 7)
    with pytest.raises(UserError, match="at least 3 classes per client"):
        mask_of(Missing(missing=5, balanced=True), 3, 7)
    for missing in (-1, 5):
        with pytest.raises(UserError, match=f"between 0 and 4 for 5 classes, found {missing}"):
            mask_of(Missing(missing=missing), 5, 5)
    for clients, missing in ((4, 4), (5, 3)):
        with pytest.raises(UserError, match="one_to_one needs one annotated class per client"):
            mask_of(Missing(missing=missing, one_to_one=True), clients, 5)


@pytest.mark.parametrize(("clients", "classes"), [(8, 14), (5, 7), (3, 9)])
def test_identified_gives_exactly_that_many_distinct_classes(clients: int, classes: int) -> None:
    for seed in range(20):
        mask = mask_of(Identified(identified=3), clients, classes, seed)
        assert (mask.sum(1) == 3).all()
        assert mask.any(0).all()


def test_identified_refuses_fewer_classes_than_cover_all() -> None:
    for published in (False, True):
        with pytest.raises(UserError, match="use more clients, or at least 3 classes per client"):
            mask_of(Identified(identified=2, published=published), 5, 14)


@pytest.mark.parametrize(("clients", "classes", "share"), [(8, 14, 0.71), (5, 7, 0.81)])
def test_published_rule_often_repeats_a_class(clients: int, classes: int, share: float) -> None:
    # The share of seeds with a client below three distinct classes; 1,000 seeds, deviation 0.015.
    short = 0
    for seed in range(1000):
        mask = mask_of(Identified(published=True, published_seed=seed), clients, classes)
        assert mask.any(0).all()
        assert mask.sum(1).max() <= 3
        short += int((mask.sum(1) < 3).any())
    assert abs(short / 1000 - share) < 0.05


def test_class_order_moves_the_columns_with_the_names() -> None:
    shuffled, ordered = ("c", "a", "d", "b"), ("a", "b", "c", "d")
    for published in (False, True):
        rule = Identified(identified=2, published=published, class_order="alphabetical")
        first, second = (rule.mask(("x", "y"), each, 0) for each in (shuffled, ordered))
        columns = [shuffled.index(name) for name in ordered]
        assert torch.equal(first[:, columns], second)
    by_data = Identified(identified=2)
    first, second = (by_data.mask(("x", "y"), each, 0) for each in (shuffled, ordered))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "rule", [Missing(missing=2), Missing(missing=2, balanced=True), Identified(identified=2)]
)
def test_masks_depend_on_the_seed_alone(rule: Annotation) -> None:
    first = mask_of(rule, 6, 5, seed=1)
    random.seed(3)
    np.random.seed(3)
    torch.manual_seed(3)
    states = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
    others = [mask_of(rule, 6, 5, seed=seed) for seed in range(2, 6)]
    assert torch.equal(mask_of(rule, 6, 5, seed=1), first)
    assert any(not torch.equal(other, first) for other in others)
    assert states == (
        random.getstate(),
        np.random.get_state()[1].tolist(),
        torch.get_rng_state().tolist(),
    )


def test_published_rule_has_its_own_seed_and_leaves_the_global_generator_alone() -> None:
    random.seed(3)
    state = random.getstate()
    first, second = (mask_of(Identified(published=True), 8, 14, seed) for seed in (0, 1))
    assert torch.equal(first, second)
    assert random.getstate() == state


def test_listed_takes_names_and_positions() -> None:
    rule = Listed(annotates={"north": ("b",), "1": ("a", "c"), "2": ()})
    mask = rule.mask(("north", "south", "east"), ("a", "b", "c"), seed=0)
    assert mask.int().tolist() == [[0, 1, 0], [1, 0, 1], [0, 0, 0]]
    # "1" means the client called "1", although it is at position 0.
    numbered = Listed(annotates={"1": ("a",), "0": ("b",)})
    assert numbered.mask(("1", "0"), ("a", "b"), seed=0).int().tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("annotates", "message"),
    [
        ({"nort": ("a",), "south": ("b",)}, "no such client: 'nort'; did you mean 'north'"),
        (
            {"north": ("edma",), "south": ()},
            "which is not a class of the data; did you mean 'edema'",
        ),
        ({"north": ("mass",)}, "annotates leaves out south"),
        ({"north": ("mass",), "0": ("edema",)}, "twice, as 'north' and '0'"),
    ],
)
def test_listed_names_the_mistake(annotates: dict[str, tuple[str, ...]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Listed(annotates=annotates).mask(("north", "south"), ("edema", "mass"), seed=0)
