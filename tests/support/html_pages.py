"""What a page of HTML holds, read with html.parser: tags, ids, links, scripts and shown text."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "input", "img", "link", "hr"}


@dataclass
class Page(HTMLParser):
    """A parsed page."""

    text: str
    tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)
    headings: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=list)  # text of every td and th
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag == "script":
            self.scripts.append("")
        if tag in ("h1", "h2", "h3"):
            self.headings.append("")
        if tag in ("td", "th"):
            self.cells.append("")
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:  # td, th and tr may be left open
            pass

    def handle_data(self, data: str) -> None:
        if not self._open:
            return
        if self._open[-1] == "script":
            self.scripts[-1] += data
        if any(each in ("h1", "h2", "h3") for each in self._open):
            self.headings[-1] += data
        if any(each in ("td", "th") for each in self._open):
            self.cells[-1] += data

    @property
    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.tags if "id" in attributes]

    def values(self, *names: str) -> list[str]:
        """The values of attributes with one of these names, on any tag."""
        return [found[name] for _, found in self.tags for name in names if name in found]

    @property
    def policy(self) -> str:
        (found,) = (
            attributes["content"]
            for tag, attributes in self.tags
            if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
        )
        return found
