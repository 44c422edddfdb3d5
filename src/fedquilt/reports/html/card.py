"""Card: what a run cannot know about its model, such as intended use, written by its owners."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedquilt.core.atomic_files import write_json
from fedquilt.core.errors import UserError
from fedquilt.core.parsed_text import parse_table
from fedquilt.core.settings import read
from fedquilt.reports.html.run_files import CARD_FILE

NOT_STATED = "not stated"
TITLES = {
    "intended_use": "Intended use",
    "not_for": "Not for",
    "users": "Users",
    "setting": "Where and when the data were collected",
    "eligibility": "Which patients and images were included",
    "devices": "Devices and acquisition",
    "reference_standard": "Reference standard",
    "annotators": "Annotators and their training",
    "ethics": "Ethics approval and consent",
    "fairness": "Groups of people for whom it was examined",
    "funding": "Funding and interests",
    "contact": "Contact",
    "licence": "Licence",
}


@dataclass(frozen=True, kw_only=True)
class Card:
    """The table ``[card]`` of a study file or of a card file; every entry is text, or empty."""

    title: str = ""  # of the report; default: the method and the data
    intended_use: str = ""
    not_for: str = ""
    users: str = ""
    setting: str = ""
    eligibility: str = ""
    devices: str = ""
    reference_standard: str = ""
    annotators: str = ""
    ethics: str = ""
    fairness: str = ""
    funding: str = ""
    contact: str = ""
    licence: str = ""

    def rows(self) -> list[dict[str, Any]]:
        """Return the entries with their titles, those that are empty as "not stated"."""
        return [
            {
                "title": words,
                "lines": getattr(self, name).strip().splitlines() or [NOT_STATED],
                "is_stated": bool(getattr(self, name).strip()),
            }
            for name, words in TITLES.items()
        ]


def card_from(settings: Any, where: str = "card") -> Card:
    card: Card = read(Card, settings, where, {})
    return card


def read_card(path: Path) -> Card:
    """Read a card from TOML or JSON, at the top level or in a table ``[card]``."""
    try:
        text = path.read_text(encoding="utf-8")
        settings = parse_table(text, path.suffix)
    except OSError as error:
        raise UserError(f"the card {path} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not JSON, not TOML, or not text
        raise UserError(
            f"the card {path} is neither TOML nor JSON ({error}); write lines such as "
            f'intended_use = "..."; entries: {", ".join(each.name for each in fields(Card))}'
        ) from error
    return card_from(settings.get("card", settings) if isinstance(settings, dict) else settings)


def keep_card(folder: Path, card: Card) -> None:
    """Write the card into a run folder, where later reports find it."""
    write_json(folder / CARD_FILE, asdict(card))
