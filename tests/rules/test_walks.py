"""The walks of docs/concepts/one_round.md: every hop is called, and in the order of the page."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from PIL import Image
from support.markdown_pages import ROOT
from support.tiny_federation import make_federation

import fedquilt
from fedquilt.methods.fedavg import FedAvg
from fedquilt.runs import experiment

PACKAGE = ROOT / "src" / "fedquilt"
MOST_FILES = 8  # of a FedAvg round, for a newcomer
_HOP = re.compile(r"^\| \d+ \| `([\w/]+\.py):([\w.]+)` \|", re.MULTILINE)


def hops(heading: str) -> list[tuple[str, str]]:
    """File and function of each hop below a heading of the page."""
    text = (ROOT / "docs" / "concepts" / "one_round.md").read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return _HOP.findall(section)


@contextmanager
def first_calls(start: tuple[str, str]) -> Iterator[dict[tuple[str, str], int]]:
    """The order in which the package's functions were first called, from ``start`` on."""
    found: dict[tuple[str, str], int] = {}
    inside = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside):
            place = (Path(code.co_filename).relative_to(PACKAGE).as_posix(), code.co_qualname)
            if found or place == start:
                found.setdefault(place, len(found))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def assert_called_in_order(walk: list[tuple[str, str]], calls: dict[tuple[str, str], int]) -> None:
    functions = [hop for hop in walk if not hop[1].rpartition(".")[2][0].isupper()]
    assert [hop for hop in functions if hop not in calls] == []
    assert sorted(functions, key=calls.__getitem__) == functions


def test_update_from_client_to_server():
    walk = hops("An update, from client to server")
    assert len({file for file, _ in walk}) <= MOST_FILES
    federation = make_federation(rounds=1)
    with first_calls(walk[0]) as calls:
        federation.train(FedAvg())
    assert_called_in_order(walk, calls)


def test_blank_cell_from_csv_to_metric(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    walk = hops("A blank cell, from CSV to metric")
    (tmp_path / "images").mkdir()
    rows = ["image,site,split,a,b"]
    for number in range(24):
        Image.new("L", (16, 16), 10 * number).save(tmp_path / "images" / f"{number}.png")
        site, label = (
            ("north", f"{number // 2 % 2},") if number % 2 else ("south", f",{number % 4 // 2}")
        )
        rows.append(f"{number}.png,{site},{'test' if number > 15 else 'train'},{label}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    monkeypatch.chdir(tmp_path)
    data = {"name": "folder", "folder": "images", "labels": "labels.csv", "size": 16, "channels": 1}
    data |= {"site_column": "site", "split_column": "split"}
    recipe = fedquilt.recipe_from(
        {
            "rounds": 1,
            "data": data,
            "partition": {"name": "natural", "by": "site"},
            "annotation": {"name": "recorded"},
            "method": {"name": "fedavg-pl"},
        }
    )
    with first_calls(walk[0]) as calls:
        experiment.run(recipe, Path("run"), engine="sequential")
    assert_called_in_order(walk, calls)
