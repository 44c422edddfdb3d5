"""Render a report: templates, and a policy under which a page can load and send nothing."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from fedquilt.reports.html.formatting import finalize, for_markdown

TEMPLATES = Path(__file__).parent / "templates"


def render_page(template: str, content: Mapping[str, Any]) -> str:
    """Return a page of HTML; every value is escaped, and shown if it could not be seen."""
    templates = _environment(finalize)
    script = templates.get_template("report.js").render()
    return templates.get_template(template).render(**content, policy=_policy(script)) + "\n"


def render_markdown(template: str, content: Mapping[str, Any]) -> str:
    """Return a page of Markdown; no value can become markup."""
    return _environment(for_markdown).get_template(template).render(**content) + "\n"


@cache
def _environment(finish: Callable[[Any], Any]) -> Environment:
    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=finish,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _policy(script: str) -> str:
    """Return the content security policy: this one script, own styles and pictures, no network."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
