"""The card: what its owners state, and "not stated" for the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.report_folders import write_run_folder

from fedquilt.core.errors import UserError
from fedquilt.reports.html.card import NOT_STATED, TITLES, Card, read_card
from fedquilt.reports.html.run_report import write_run_report

STATED = 'title = "Chest films"\nintended_use = """Research.\nNo triage."""\n'


def test_entries_and_what_is_not_stated():
    rows = {row["title"]: row for row in Card(intended_use="Research.\nNo triage.").rows()}
    assert rows["Intended use"]["lines"] == ["Research.", "No triage."]
    assert rows["Not for"] == {"title": "Not for", "lines": [NOT_STATED], "is_stated": False}
    assert len(rows) == len(TITLES)


@pytest.mark.parametrize("text", [STATED, f"[card]\n{STATED}"])
def test_a_card_is_read_with_and_without_its_table(tmp_path: Path, text: str):
    path = tmp_path / "card.toml"
    path.write_text(text)
    assert read_card(path) == Card(title="Chest films", intended_use="Research.\nNo triage.")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('intended = "x"', "intended_use"),
        ("ethics = 3", "ethics"),
        ("ethics", "neither TOML nor JSON"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, text: str, words: str):
    path = tmp_path / "card.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=words):
        read_card(path)


def test_a_missing_card_is_named(tmp_path: Path):
    with pytest.raises(UserError, match=r"none\.toml cannot be read"):
        read_card(tmp_path / "none.toml")


def test_a_card_is_kept_for_later_reports(tmp_path: Path):
    folder = write_run_folder(tmp_path / "run", ("edema",))
    write_run_report(folder, card=Card(title="Chest films", funding="none"))
    html, card = write_run_report(folder)
    assert "<h1>Chest films</h1>" in html.read_text()
    text = card.read_text()
    assert text.startswith("# Model card: Chest films\n")
    assert "- **Funding and interests**: none\n" in text
    assert "- **Ethics approval and consent**: not stated\n" in text
