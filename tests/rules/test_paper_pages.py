"""The committed pages of papers are those that the recipes and results describe."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.markdown_pages import differing_pages

from docs.our_numbers import RESULTS
from docs.paper_pages import INDEX, PAPERS, pages
from fedquilt.recipes.papers import TABLES, find_table
from fedquilt.recipes.papers.displays import DISPLAYS
from fedquilt.recipes.papers.published_numbers import FILE

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "papers"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return pages()


def test_committed_pages_are_what_the_code_describes(written: dict[str, str]):
    differing = differing_pages(COMMITTED, written)
    assert not differing, f"{', '.join(differing)} in docs/papers: run `make docs`"


def test_every_table_figure_row_and_remark_is_on_a_page(written: dict[str, str]):
    for name in TABLES:
        page = written[f"{name.partition('/')[0]}.md"]
        table = find_table(name)
        assert f"`{name}`" in page
        for row in table.rows:
            assert f"| `{row.name}` | {row.label} | {row.kind} |" in page
        for remark in table.remarks:
            assert remark in " ".join(page.split())
    for name in DISPLAYS:
        assert f"`fedquilt reproduce {name}`" in written[f"{name.partition('/')[0]}.md"]


def test_every_published_number_of_a_table_with_rows_is_on_its_page(written: dict[str, str]):
    with FILE.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["paper"] for line in lines} == {*PAPERS}
    checked = 0
    for line in lines:
        if (line["paper"], line["table"]) in {("fedlsm", "5"), ("fedlsm", "6")}:
            continue  # counts: the command lays them beside ours
        spread = f" ± {float(line['deviation']):.2f}" if line["deviation"] else ""
        assert f" {float(line['value']):.2f}{spread} |" in written[f"{line['paper']}.md"], line
        checked += 1
    assert checked == 969


def test_our_numbers_are_beside_the_papers_in_their_row_and_column(written: dict[str, str]):
    lines = written["fednca-ml.md"].splitlines()
    head = next(line for line in lines if line.startswith("| macro AUC (%) |"))
    row = lines[lines.index(head) + 2 :]
    fednca = next(line for line in row if line.startswith("| FedNCA-ML |"))
    cells = dict(zip(head.split("|"), fednca.split("|")))
    assert cells[" cifar10 composites: beta 0.5 "].startswith(" 87.55")
    assert cells[" ours, cifar10: beta 0.5 "].startswith(" 87.3")
    assert cells[" ours, cifar10-128: beta 0.5 "].startswith(" 90.29")


def test_every_stored_table_is_named(written: dict[str, str]):
    text = "".join(written.values())
    for path in RESULTS.glob("*.csv"):
        assert path.stem.endswith("_runs") or f"/{path.name})" in text, path.name
    assert "[FedMLP (Sun et al., MICCAI 2024)" in written[INDEX]
