"""The page itself: one script, no network, unique ids, equal bytes, hostile names as text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from support.html_pages import Page
from support.report_folders import HOSTILE, write_run_folder

from fedquilt.reports.html.run_report import write_run_report

SECTIONS = (
    *("What this model can see", "Data and who annotated what", "Per finding"),
    *("Curves per finding", "Rounds of training", "Quality of pseudo-labels", "By site"),
    *("What left each site, and under which protection", "Reproduce", "Model card"),
)


def page_of(folder: Path) -> Page:
    html, _ = write_run_report(folder)
    return Page(html.read_text(encoding="utf-8"))


@pytest.fixture
def hostile(tmp_path: Path) -> Page:
    return page_of(write_run_folder(tmp_path / "run", HOSTILE, sites=(*HOSTILE[:3], "plain")))


def test_sections_come_in_the_specified_order(tmp_path: Path):
    page = page_of(write_run_folder(tmp_path / "run", ("edema", "hernia")))
    headings = [re.sub(r"^\d+", "", each) for each in page.headings if re.match(r"\d", each)]
    assert headings == list(SECTIONS)


def test_nothing_is_loaded_from_or_sent_to_a_network(hostile: Page):
    assert not hostile.values("src", "srcset", "action", "formaction", "data", "poster", "ping")
    assert all(each.startswith("#") for each in hostile.values("href", "xlink:href"))
    tags = {tag for tag, _ in hostile.tags}
    assert not tags & {"link", "iframe", "object", "embed", "form", "base", "audio", "video", "img"}
    styles = re.search(r"<style>(.*?)</style>", hostile.text, re.DOTALL)[1]
    assert "url(" not in styles
    assert "@import" not in styles


def test_the_policy_permits_the_one_script_and_nothing_else(hostile: Page):
    (script,) = hostile.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert hostile.policy == (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    events = [name for _, found in hostile.tags for name in found if name.startswith("on")]
    assert not events


def test_hostile_names_are_text(hostile: Page):
    cells = {cell.strip() for cell in hostile.cells}
    assert {HOSTILE[0], HOSTILE[1], "{{7*7}}", "$x$", HOSTILE[6].strip()} <= cells
    assert {"\ufffd[31mred", "\ufffdevil", "(no name)"} <= cells
    assert "49" not in cells
    hidden = re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", hostile.text)
    assert hidden == []


def test_hostile_names_are_text_in_the_model_card(tmp_path: Path):
    _, card = write_run_report(write_run_folder(tmp_path / "run", HOSTILE))
    text = card.read_text(encoding="utf-8")
    assert "<" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "&lt;script&gt;window.pwned=1&lt;/script&gt;" in text
    assert r"\$x\$" in text
    assert "http://" not in text  # which a reader of Markdown would turn into a link


def test_ids_are_unique_and_links_lead_to_them(hostile: Page):
    assert len(set(hostile.ids)) == len(hostile.ids)
    assert {each[1:] for each in hostile.values("href")} <= set(hostile.ids)
    assert set(hostile.values("aria-controls")) <= set(hostile.ids)


def test_tables_have_captions_and_headers_with_scope(hostile: Page):
    tags = [tag for tag, _ in hostile.tags]
    assert tags.count("table") == tags.count("caption") > 5
    assert all(found.get("scope") in ("col", "row") for tag, found in hostile.tags if tag == "th")
    assert ("html", {"lang": "en"}) in hostile.tags


def test_a_second_rendering_has_the_same_bytes(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", HOSTILE)
    first = [path.read_bytes() for path in write_run_report(folder)]
    assert [path.read_bytes() for path in write_run_report(folder)] == first


def test_1628_classes_stay_below_2_mb(tmp_path: Path):
    names = [f"finding number {number}" for number in range(1628)]
    html, _ = write_run_report(write_run_folder(tmp_path / "run", names))
    assert html.stat().st_size < 2_000_000
    page = Page(html.read_text(encoding="utf-8"))
    assert page.text.count('class="bar"') == 21  # a head and 20 rows: the first screen stays one


def test_a_report_does_not_say_where_files_lie(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema",))
    recipe = json.loads((folder / "recipe.json").read_text())
    recipe["data"] |= {"folder": "/data/somebody/films", "labels": "films/labels.csv"}
    recipe["model"] = {"weights": ["/data/somebody/w.safetensors", 3]}
    (folder / "recipe.json").write_text(json.dumps(recipe))
    shown = page_of(folder).text
    assert "somebody" not in shown
    for name in ("…/films", "films/labels.csv", "…/w.safetensors"):
        assert f"&#34;{name}&#34;" in shown
