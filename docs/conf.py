"""Sphinx builds the site: ``make docs-site`` writes it to build/site."""

from __future__ import annotations

from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.highlighting import lexers
from sphinx.util.inspect import TypeAliasForwardRef

from fedquilt.core.version import VERSION
from fedquilt.recipes.source_docs import read_class

project = "fedquilt"
author = "The fedquilt developers"
release = VERSION
html_title = f"fedquilt {VERSION}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
highlight_language = "none"  # blocks that name no language are commands
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

myst_heading_anchors = 3  # [text](page.md#heading) works as on code hosts
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["myst.header"]  # included files begin with their own first heading

lexers["csv"] = TextLexer()  # label tables: Pygments has no lexer for them

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: name
    for name in ("DeclaredPart", "Provenance", "State", "Tree", "Update", "Weights", "EngineName")
}
# Inside of Mapping[...] Sphinx prints an alias by its repr.
TypeAliasForwardRef.__repr__ = lambda alias: alias.name  # type: ignore[method-assign]
add_module_names = False
python_use_unqualified_type_names = True


def add_fields(
    _app: Any, what: str, _name: str, described: Any, _options: Any, lines: list[str]
) -> None:
    """Append a dataclass's fields, with the comments that document them in the source."""
    if what != "class" or not hasattr(described, "__dataclass_fields__"):
        return
    if lines and lines[0].startswith(f"{described.__name__}("):
        lines.clear()  # Python's own text for a dataclass without a docstring
    source = read_class(f"{described.__module__}:{described.__name__}")
    for field in source.fields:
        default = "" if field.default is None else f", default ``{field.default}``"
        lines += ["", f"- **{field.name}** (``{field.type}``{default}) {field.comment}".rstrip()]
    lines.append("")


def hide_signature(
    _app: Any, what: str, _name: str, described: Any, *_: Any
) -> tuple[str, None] | None:
    """Leave out a dataclass's arguments: its fields are listed below it."""
    if what == "class" and hasattr(described, "__dataclass_fields__"):
        return "", None
    return None


def setup(app: Any) -> None:
    """Register the hooks of this file with Sphinx."""
    app.connect("autodoc-process-docstring", add_fields)
    app.connect("autodoc-process-signature", hide_signature)
