"""The Markdown pages of the repository, and the code blocks and names in them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of one language, in order; ``page`` is relative to the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [code for kind, code in _BLOCK.findall(text) if kind == language]


def code_spans(text: str) -> set[str]:
    """What stands between single backticks, outside of code blocks."""
    return set(re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text)))


def links(text: str) -> set[str]:
    """The targets of links into the repository, without what follows a ``#``."""
    targets = re.findall(r"\]\(([^)\s]+)\)", _BLOCK.sub("", text))
    return {target.partition("#")[0] for target in targets if "://" not in target} - {""}
