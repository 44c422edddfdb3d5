"""The example of a report in the docs: small, of made-up hospitals, with nothing of a machine."""

from __future__ import annotations

import importlib.util

from support.html_pages import Page
from support.markdown_pages import ROOT

PAGE = ROOT / "docs" / "_static" / "example_report.html"


def test_the_example_is_small_and_loads_nothing():
    text = PAGE.read_text(encoding="utf-8")
    page = Page(text)
    assert len(text) < 200_000
    assert not {tag for tag, _ in page.tags} & {"img", "image", "link", "iframe"}
    assert "base64," not in text  # no picture of a data set
    assert not any(place in text for place in ("/tmp", "/home", "/root", "/work"))


def test_the_example_is_what_its_program_describes():
    path = ROOT / "docs" / "example_report.py"
    spec = importlib.util.spec_from_file_location("example_report", path)
    assert spec is not None
    assert spec.loader is not None
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    page = Page(PAGE.read_text(encoding="utf-8"))
    cells = {cell.strip() for cell in page.cells}
    assert {*program.FINDINGS, *program.TRAINING} <= cells
    assert "Digits at three made-up hospitals" in page.headings
    assert any(each.startswith("On other people's data") for each in page.headings)
