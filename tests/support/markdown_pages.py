"""The Markdown pages of the repository, and the code blocks and names in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
GENERATED = (ROOT / "docs" / "methods", ROOT / "docs" / "papers")
DOCS = tuple(sorted((ROOT / "docs").rglob("*.md")))
PAGES = (  # those written by hand
    *(page for page in DOCS if not {*GENERATED} & {*page.parents}),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
)

_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_TARGET = re.compile(r"\]\(([^)\s]+)\)")


def page_id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def all_blocks(page: str) -> list[tuple[str, str]]:
    """Language and code of all code blocks, in order; ``page`` is relative to the repository."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [(kind, code) for _, kind, code in _BLOCK.findall(text)]


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of one language, in order."""
    return [code for kind, code in all_blocks(page) if kind == language]


def code_spans(text: str) -> set[str]:
    """What stands between single backticks, outside of code blocks."""
    return set(re.findall(r"`([^`\n]+)`", _BLOCK.sub("", text)))


def links(text: str) -> set[str]:
    """The targets of links into the repository, without what follows a ``#``."""
    targets = _TARGET.findall(_BLOCK.sub("", text))
    return {target.partition("#")[0] for target in targets if "://" not in target} - {""}


def prose_lines(text: str) -> list[str]:
    """The lines outside of code blocks and tables, without the targets of their links."""
    lines = _BLOCK.sub("", text).splitlines()
    return [_TARGET.sub("]", line) for line in lines if not line.lstrip().startswith("|")]


def differing_pages(folder: Path, written: Mapping[str, str]) -> list[str]:
    """Names of the pages that are not in the folder as ``make docs`` would write them."""
    found = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}
    names = found.keys() | written.keys()
    return sorted(name for name in names if found.get(name) != written.get(name))
