"""Allocations: what allocate() builds, its errors, and lossless, tamper-evident files."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.label_table import LabelTable

from fedquilt.core.errors import UserError
from fedquilt.data.allocation import Allocation, Holding, allocate, label_counts
from fedquilt.data.annotations.rules import Full, Listed, Missing, Recorded
from fedquilt.data.client_data import ClientData
from fedquilt.data.dataset import LabelView, MultiLabelDataset
from fedquilt.data.partitions.dirichlet_presence import DirichletPresence
from fedquilt.data.partitions.iid import Iid
from fedquilt.data.partitions.natural import Natural
from fedquilt.data.partitions.partition import Assignment, Partition
from fedquilt.data.partitions.positive_only import PositiveOnly


def label_table(images: int = 40) -> LabelTable:
    generator = torch.Generator().manual_seed(0)
    return LabelTable(
        labels=torch.randint(0, 2, (images, 3), generator=generator, dtype=torch.uint8),
        known=torch.rand(images, 3, generator=generator) < 0.7,
        classes=("edema", "mass", "hernia"),
        sites=tuple("north" if row % 3 else "süd" for row in range(images)),
    )


def small_allocation(protocol: dict[str, Any] | None = None) -> Allocation:
    north = Holding("north", torch.tensor([4, 1]), torch.tensor([[True, False], [True, True]]))
    south = Holding("süd", torch.tensor([0]), torch.tensor([[False, True]]))
    return Allocation((north, south), ("edema", "mass"), protocol or {"seed": 1, "share": 0.1})


def test_known_combines_data_annotation_and_partition() -> None:
    data = label_table()
    rule = Listed(annotates={"north": ("edema", "mass"), "süd": ("hernia",)})
    allocation = allocate(data, Natural(), rule, seed=0)
    rows = {"north": [True, True, False], "süd": [False, False, True]}
    for holding in allocation.holdings:
        expected = data.known[holding.indices] & torch.tensor(rows[holding.name])
        assert torch.equal(holding.known, expected)
    assert allocation.annotation_map().int().tolist() == [[1, 1, 0], [0, 0, 1]]

    only = allocate(data, PositiveOnly(), Recorded(), seed=0)
    for column, holding in enumerate(only.holdings):
        assert holding.known.nonzero()[:, 1].unique().tolist() == [column]
        assert (data.labels[holding.indices, column] == 1).all()
        assert data.known[holding.indices, column].all()


def test_the_protocol_says_how_it_was_made() -> None:
    data = label_table(images=41)
    allocation = allocate(data, Iid(clients=4), Missing(missing=1), seed=7)
    assert allocation.protocol == {
        "partition": {"name": "iid", "clients": 4, "remainder": "drop"},
        "annotation": {"name": "missing", "missing": 1, "balanced": False, "one_to_one": False},
        "seed": 7,
        "images": 41,
        "notes": {"dropped_images": 1},
    }


def test_the_same_settings_give_the_same_allocation_everywhere() -> None:
    data = LabelTable(
        labels=torch.zeros(20, 4, dtype=torch.uint8),
        known=torch.ones(20, 4, dtype=torch.bool),
        classes=("a", "b", "c", "d"),
    )
    allocation = allocate(data, Iid(clients=3), Missing(missing=2), seed=0)
    # Written down once: another platform or version must draw the same.
    assert [holding.indices.tolist() for holding in allocation.holdings] == [
        [0, 2, 3, 10, 12, 14],
        [4, 8, 11, 13, 16, 18],
        [1, 5, 6, 7, 17, 19],
    ]
    assert allocation.annotation_map().int().tolist() == [[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]]


def test_a_data_set_and_its_label_table_give_the_same_allocation() -> None:
    table = label_table()
    dataset = MultiLabelDataset(
        images=torch.zeros(40, 1, 2, 2, dtype=torch.uint8),
        labels=table.labels,
        known=table.known,
        classes=table.classes,
        ids=tuple(map(str, range(40))),
        sites=table.sites,
    )
    sources: list[LabelView] = [table, dataset]
    first, second = (allocate(each, Natural(), Recorded(), seed=0) for each in sources)
    assert first.hash == second.hash


def test_a_masked_label_cannot_be_read_from_a_client() -> None:
    table = replace(label_table(), known=torch.ones(40, 3, dtype=torch.bool))
    images = torch.zeros(40, 1, 2, 2, dtype=torch.uint8)
    ids = tuple(map(str, range(40)))
    views = []
    for hidden in (0, 1):
        allocation = allocate(table, Iid(clients=3), Missing(missing=2, one_to_one=True), seed=0)
        labels = table.labels.clone()
        for holding in allocation.holdings:
            rows = labels[holding.indices]
            labels[holding.indices] = rows.masked_fill(~holding.known, hidden)
        dataset = MultiLabelDataset(
            images=images, labels=labels, known=table.known, classes=table.classes, ids=ids
        )
        views.append([ClientData.of(dataset, holding) for holding in allocation.holdings])
    for one, two, holding in zip(*views, allocation.holdings):
        assert torch.equal(one.labels, two.labels)
        known = table.labels[holding.indices][holding.known]
        assert torch.equal(one.labels[holding.known], known)


def test_positive_counts_are_of_annotated_entries() -> None:
    labels = torch.tensor([[1, 1], [1, 1], [0, 0], [0, 0], [1, 1]], dtype=torch.uint8)
    # north: images 4 (edema known) and 1 (both known); south: image 0 (mass known).
    annotated, positives = label_counts(small_allocation().holdings, labels)
    assert annotated.tolist() == [[2, 1], [0, 1]]
    assert positives.tolist() == [[2, 1], [0, 1]]
    assert annotated.dtype == np.uint8  # K x C may be 51,414 x 1,628


def test_a_class_without_annotator_is_refused() -> None:
    data = label_table()
    rule = Listed(annotates={"north": ("edema",), "süd": ("edema",)})
    with pytest.raises(UserError, match="no client annotates mass, hernia") as caught:
        allocate(data, Natural(), rule, seed=0)
    assert "leave the class out" in str(caught.value)
    blank = replace(data, known=data.known & torch.tensor([True, True, False]))
    with pytest.raises(UserError, match="no client annotates hernia"):
        allocate(blank, Natural(), Recorded(), seed=0)


def test_full_annotation_needs_complete_data() -> None:
    known = torch.ones(40, 3, dtype=torch.bool)
    known[:12, 0] = False  # 12 of 120 entries
    data = replace(label_table(), known=known)
    with pytest.raises(UserError, match=r"'full' needs data .* but 10\.0% are not; use 'recorded'"):
        allocate(data, Natural(), Full(), seed=0)
    complete = replace(data, known=torch.ones_like(known))
    assert all(h.known.all() for h in allocate(complete, Natural(), Full(), seed=0).holdings)


@dataclass(frozen=True, kw_only=True)
class Lopsided(Partition):
    def assign(self, data: LabelView, seed: int) -> Assignment:
        return Assignment.from_clients(("all", "none"), np.zeros(len(data.labels), np.int64), {})


def test_an_empty_client_is_refused() -> None:
    with pytest.raises(UserError, match="leaves none without images"):
        allocate(label_table(), Lopsided(), Recorded(), seed=0)


@pytest.mark.parametrize(
    "partition",
    [
        Iid(clients=3),
        PositiveOnly(),
        DirichletPresence(
            clients=3, concentration=1.0, presence_share=0.7, uncovered="mask", smallest_client=1
        ),
    ],
)
def test_saving_and_loading_is_lossless(partition: Partition, tmp_path: Path) -> None:
    saved = allocate(label_table(), partition, Recorded(), seed=0)
    path = tmp_path / "deeper" / "allocation.npz"
    saved.save(path)
    loaded = Allocation.load(path)
    assert loaded.hash == saved.hash
    assert loaded.classes == saved.classes
    assert loaded.protocol == saved.protocol
    for one, two in zip(loaded.holdings, saved.holdings, strict=True):
        assert one.name == two.name
        assert torch.equal(one.indices, two.indices)
        assert one.indices.dtype == torch.int64
        assert torch.equal(one.known, two.known)
        assert one.known.dtype == torch.bool


def test_the_file_holds_plain_arrays(tmp_path: Path) -> None:
    small_allocation().save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        assert file["indices"].tolist() == [4, 1, 0]
        assert file["known"].tolist() == [[True, False], [True, True], [False, True]]
        header = json.loads(str(file["header"]))
    assert header["names"] == ["north", "süd"]
    assert header["sizes"] == [2, 1]


def test_the_hash_is_of_the_content_alone() -> None:
    first = small_allocation({"seed": 1, "notes": {"a": (1, 2), "b": None}})
    second = small_allocation({"notes": {"b": None, "a": [1, 2]}, "seed": 1})
    assert first.hash == second.hash
    changed = [
        small_allocation({"seed": 2}),
        replace(first, classes=("mass", "edema")),
        replace(first, holdings=first.holdings[::-1]),
        replace(first, holdings=(replace(first.holdings[0], name="n"), first.holdings[1])),
    ]
    north = first.holdings[0]
    others = (replace(north, indices=north.indices + 1), replace(north, known=~north.known))
    changed += [replace(first, holdings=(other, first.holdings[1])) for other in others]
    assert len({first.hash, *(each.hash for each in changed)}) == 7


def test_the_hash_is_that_of_a_header_and_little_endian_arrays() -> None:
    header = (
        '{"classes":["edema","mass"],"format":"fedquilt allocation 1",'
        '"names":["north","s\\u00fcd"],"protocol":{"seed":1,"share":0.1},"sizes":[2,1]}'
    )
    content = header.encode() + struct.pack("<3q", 4, 1, 0) + bytes([1, 0, 1, 1, 0, 1])
    assert small_allocation().hash == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize("part", ["indices", "known", "header", "hash"])
def test_an_altered_file_is_refused(part: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    small_allocation().save(path)
    with np.load(path, allow_pickle=False) as file:
        content = dict(file)
    altered = {
        "indices": content["indices"] + 1,
        "known": ~content["known"],
        "header": np.array(str(content["header"]).replace("north", "nowhere")),
        "hash": np.array("0" * 64),
    }
    np.savez(path, **(content | {part: altered[part]}))
    with pytest.raises(UserError, match="was altered after it was written"):
        Allocation.load(path)


def test_a_damaged_or_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    small_allocation().save(path)
    whole = path.read_bytes()
    middle = len(whole) // 2
    objects = tmp_path / "objects.npz"
    np.savez(objects, header=np.array([{"a": 1}], dtype=object))
    foreign = tmp_path / "foreign.npz"
    np.savez(foreign, images=np.zeros(3))
    contents = [whole[:middle], b"", b"no archive", objects.read_bytes(), foreign.read_bytes()]
    contents.append(whole[:100] + bytes(byte ^ 255 for byte in whole[100:140]) + whole[140:])
    for content in contents:
        path.write_bytes(content)
        with pytest.raises(UserError, match="is not a complete allocation file"):
            Allocation.load(path)
    with pytest.raises(UserError, match="no allocation at"):
        Allocation.load(tmp_path / "absent.npz")


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.npz"
    small_allocation().save(path)

    def broken(file: Any, texts: Any, arrays: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("fedquilt.data.allocation.write_client_arrays", broken)
    with pytest.raises(OSError, match="disk full"):
        small_allocation({"seed": 2}).save(path)
    assert Allocation.load(path).hash == small_allocation().hash
    assert [each.name for each in tmp_path.iterdir()] == ["a.npz"]


def test_shapes_and_names_are_checked() -> None:
    one = Holding("a", torch.tensor([0]), torch.tensor([[True]]))
    with pytest.raises(ValueError, match="1 columns, expected one for each of 2 classes"):
        Allocation((one,), ("x", "y"))
    with pytest.raises(ValueError, match="client names must differ"):
        Allocation((one, one), ("x",))
    with pytest.raises(ValueError, match="2 rows, expected one for each of 1 images"):
        Holding("a", torch.tensor([0]), torch.ones(2, 1, dtype=torch.bool))
    with pytest.raises(ValueError, match="int64"):
        Holding("a", torch.tensor([0.0]), torch.tensor([[True]]))
