"""Reports in a real browser: nothing is logged or loaded, tables sort and filter, pages print."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.chromium import MISSING, Tab, chromium, find_chromium
from support.comparisons import made_comparison
from support.report_folders import HOSTILE, write_run_folder

from fedquilt.metrics.evaluation import Evaluation
from fedquilt.reports.html.comparison_report import write_comparison_report
from fedquilt.reports.html.run_report import write_run_report
from fedquilt.runs.intervals import result_intervals
from fedquilt.runs.scores import Scores, write_scores

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_chromium() is None, reason=MISSING),
]
NAMES = (*HOSTILE, *(f"finding {number}" for number in range(12)))
TABLE = "document.querySelector('#classes table')"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run with hostile names and scores per image, so that it has curves."""
    random = np.random.default_rng(0)
    labels = random.random((200, len(NAMES))) < 0.3
    logits = random.standard_normal(labels.shape) + 2 * labels * random.random(len(NAMES))
    scores = Scores(
        part="test",
        round=3,
        classes=NAMES,
        ids=tuple(map(str, range(200))),
        labels=labels.astype(np.uint8),
        known=np.ones_like(labels),
        logits={"global": logits.astype(np.float32)},
    )
    folder = tmp_path_factory.mktemp("report") / "run"
    write_run_folder(folder, NAMES, result=result_intervals(scores, Evaluation(), 0))
    write_scores(folder, scores)
    return write_run_report(folder)[0]


@pytest.fixture(scope="module")
def browser(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with chromium(tmp_path_factory.mktemp("profile")) as tab:
        tab.open(page)
        yield tab


def test_a_comparison_of_1628_findings_sorts_filters_and_loads_nothing(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("comparison")
    names = (*HOSTILE, *(f"finding {number}" for number in range(1628 - len(HOSTILE))))
    page = write_comparison_report(made_comparison(names), folder / "comparison.html")
    with chromium(folder / "profile") as tab:
        tab.open(page)
        rows = f"[...{TABLE}.tBodies[0].rows]"
        tab.run(f"{TABLE}.tHead.rows[0].cells[1].querySelector('button').click()")
        shown = tab.run(f"{rows}.slice(0, 3).map(row => parseFloat(row.cells[1].textContent))")
        assert shown == sorted(shown)
        field = "document.querySelector('#classes input[type=search]')"
        tab.run(f"{field}.value = 'finding 16'; {field}.dispatchEvent(new Event('input'))")
        assert tab.run(f"{rows}.filter(row => !row.hidden).length") == 31  # 16, 160-169, 1600-1619
        assert tab.complaints == []
        assert tab.requests == [page.resolve().as_uri()]
        assert tab.run("window.pwned === undefined")


def column(browser: Tab, place: int) -> list[float]:
    """The numbers of a column in the shown order, without dashes."""
    found: list[float] = browser.run(
        f"[...{TABLE}.tBodies[0].rows].map(row => parseFloat(row.cells[{place}].textContent"
        ".replace(/,/g, ''))).filter(number => !isNaN(number))"
    )
    return found


def test_tables_sort_by_mouse_and_by_keyboard(browser: Tab) -> None:
    heads = browser.run(f"[...{TABLE}.tHead.rows[0].cells].map(head => head.textContent)")
    place = next(number for number, head in enumerate(heads) if head.startswith("AUC"))
    button = f"{TABLE}.tHead.rows[0].cells[{place}].querySelector('button')"
    before = column(browser, place)
    assert before != sorted(before)
    browser.run(f"{button}.click()")
    assert column(browser, place) == sorted(before)
    browser.run(f"{button}.focus()")
    browser.press("Enter")
    assert column(browser, place) == sorted(before, reverse=True)
    order = browser.run(f"{TABLE}.tHead.rows[0].cells[{place}].getAttribute('aria-sort')")
    assert order == "descending"


def test_the_filter_hides_other_findings(browser: Tab) -> None:
    field = "document.querySelector('#classes input[type=search]')"

    def shown(text: str) -> int:
        browser.run(f"{field}.value = '{text}'; {field}.dispatchEvent(new Event('input'))")
        found: int = browser.run(f"[...{TABLE}.tBodies[0].rows].filter(row => !row.hidden).length")
        return found

    assert shown("finding 1") == 3  # 1, 10 and 11
    assert shown("no such finding") == 0
    assert shown("") == len(NAMES)


def test_the_page_prints_with_everything_unfolded(browser: Tab) -> None:
    browser.run(
        "window.unfolded = null; addEventListener('beforeprint', () => {"
        "window.unfolded = document.querySelectorAll('details:not([open])').length})"
    )
    folded = browser.run("document.querySelectorAll('details:not([open])').length")
    assert folded > 0
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF-")
    assert browser.run("window.unfolded") == 0
    assert browser.run("document.querySelectorAll('details:not([open])').length") == folded


def test_a_narrow_screen_scrolls_in_one_direction(browser: Tab) -> None:
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    assert browser.run("document.documentElement.scrollWidth") <= 400
    # No column is squeezed until its words break into letters.
    assert browser.run(f"{TABLE}.tHead.offsetHeight") < 100
    rows = "document.querySelectorAll('#card table tbody tr')"
    assert browser.run(f"Math.max(...[...{rows}].map(row => row.offsetHeight))") < 200
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_headings_of_a_table_are_printed_on_each_page(browser: Tab) -> None:
    """Chromium prints no button in a repeated heading, so the heading must not be one there."""
    browser.call("Emulation.setEmulatedMedia", media="print")
    buttons = f"[...{TABLE}.tHead.querySelectorAll('button')]"
    shown = browser.run(f"{buttons}.map(each => getComputedStyle(each).display)")
    assert set(shown) == {"contents"}
    browser.call("Emulation.setEmulatedMedia", media="")


def test_nothing_was_logged_loaded_or_run(browser: Tab, page: Path) -> None:
    """Last, so that it covers what the other tests did."""
    assert browser.complaints == []
    assert browser.requests == [page.resolve().as_uri()]
    assert browser.run("window.pwned === undefined")
    names = browser.run(f"[...{TABLE}.tBodies[0].rows].map(row => row.cells[0].textContent)")
    assert any(HOSTILE[0] in name for name in names)
