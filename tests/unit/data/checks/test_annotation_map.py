"""The annotation map counts known labels, and its warnings say what to do."""

from __future__ import annotations

import json

import torch

from fedquilt.data.checks.annotation_map import annotation_warnings, build_annotation_map


def test_counts_ignore_unannotated_entries() -> None:
    labels = torch.tensor([[1, 1], [0, 1], [1, 1]], dtype=torch.uint8)
    known = torch.tensor([[True, False], [True, True], [False, False]])
    found = build_annotation_map(labels, known, ("A", "B"), ("s10", "s10", "s2"))
    assert found.sites == ("s2", "s10")
    assert found.images == (1, 2)
    assert found.annotated == ((0, 0), (2, 1))
    assert found.positives == ((0, 0), (1, 1))
    assert found.negatives == ((0, 0), (1, 0))
    assert found.total_annotated == (2, 1)
    content = json.loads(json.dumps(found.to_dict()))
    assert content["totals"] == {
        "images": 3,
        "annotated": [2, 1],
        "positives": [1, 1],
        "negatives": [1, 0],
    }


def test_without_sites_there_is_one_row() -> None:
    known = torch.ones(4, 1, dtype=torch.bool)
    found = build_annotation_map(known.to(torch.uint8), known, ("A",))
    assert found.sites == ("all images",)
    assert found.positives == ((4,),)


def warnings_of(labels: list[list[int]], sites: list[str], classes: tuple[str, ...]) -> str:
    """-1 is not annotated."""
    table = torch.tensor(labels)
    found = build_annotation_map((table == 1).to(torch.uint8), table >= 0, classes, sites)
    return "\n".join(annotation_warnings(found))


def test_warnings_about_classes() -> None:
    rows = [[i % 2, 0, 1, int(i < 13)] for i in range(40)] + [[i % 2, -1, 1, -1] for i in range(40)]
    text = warnings_of(rows, ["M"] * 40 + ["N"] * 40, ("fine", "none", "only", "Hernia"))
    assert "class 'none' has no positive among its 40 annotated images" in text
    assert "class 'only' has no negative among its 80 annotated images: write 0" in text
    assert "class 'Hernia' is annotated by 1 of 2 sites, 13 positives" in text
    assert "ask another site" in text
    assert "'fine'" not in text


def test_warnings_about_prototypes_below_the_disclosure_floor() -> None:
    rows = [[int(i < 9)] for i in range(30)] + [[int(i < 10)] for i in range(30)]
    text = warnings_of(rows, ["M"] * 30 + ["N"] * 30, ("A",))
    assert "class 'A' has fewer than 10 positives at 1 of 2 annotating sites (M 9)" in text
    assert "will not send them" in text


def test_warnings_about_sites() -> None:
    rows = [[i % 2] for i in range(30)] + [[-1]] * 25 + [[i % 2] for i in range(19)]
    text = warnings_of(rows, ["M"] * 30 + ["empty"] * 25 + ["small"] * 19, ("A",))
    assert "site 'empty' annotates no class (25 images)" in text
    assert "site 'small' has only 19 images" in text
    assert "site 'M'" not in text
