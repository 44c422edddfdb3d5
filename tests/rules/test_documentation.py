"""What the pages name is there: files, functions, hooks, links."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from support.markdown_pages import DOCS, PAGES, ROOT, code_spans, links, page_id, prose_lines

import fedquilt
from fedquilt.data.sources import SOURCES
from fedquilt.methods import METHODS

PACKAGE = ROOT / "src" / "fedquilt"
PROSE_WIDTH = 100

# Files that a page speaks of because they are not there.
NOT_THERE = {
    "CONTRIBUTING.md": {
        "utils.py",
        "src/fedquilt/methods/label_weighted.py",
        "tests/methods/test_label_weighted.py",
    },
}

_FILE = re.compile(r"([\w./-]+\.py)(?::([\w.]+))?")  # rounds.py or rounds.py:run_rounds
_CALL = re.compile(r"(\w+)\(\)")  # broadcast()
_FOLDER = re.compile(r"[\w./-]+/")  # methods/


def missing_names(text: str) -> set[str]:
    """Files, folders and functions in backticks that do not exist."""
    spans = code_spans(text)
    calls = {span for span in spans if _CALL.fullmatch(span)}
    places = {span for span in spans if _FILE.fullmatch(span) or _FOLDER.fullmatch(span)}
    functions = _all_functions() if calls else set()
    unknown = {span for span in calls if span.removesuffix("()") not in functions}
    return unknown | {span for span in places if not _exists(span)}


def _exists(span: str) -> bool:
    found = _FILE.fullmatch(span)
    place, name = (found[1], found[2]) if found else (span, None)
    path = next((root / place for root in (PACKAGE, ROOT) if (root / place).exists()), None)
    if path is None or name is None:
        return path is not None
    node: ast.AST | None = ast.parse(path.read_text(encoding="utf-8"))
    for part in name.split("."):
        node = _definitions(node).get(part)
        if node is None:
            return False
    return True


def _definitions(node: ast.AST) -> dict[str, ast.AST]:
    return {
        child.name: child
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.FunctionDef | ast.ClassDef)
    }


def _all_functions() -> set[str]:
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    return {
        node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_named_code_exists(page: Path):
    missing = missing_names(page.read_text(encoding="utf-8"))
    assert missing == NOT_THERE.get(page_id(page), set())


@pytest.mark.parametrize("page", sorted({*PAGES, *DOCS}), ids=page_id)
def test_links_lead_somewhere(page: Path):
    targets = links(page.read_text(encoding="utf-8"))
    assert [target for target in sorted(targets) if not (page.parent / target).exists()] == []


def test_hooks_of_a_method_are_all_explained():
    spans = code_spans((ROOT / "docs" / "concepts" / "one_round.md").read_text(encoding="utf-8"))
    tree = ast.parse((PACKAGE / "training" / "method.py").read_text(encoding="utf-8"))
    hooks = _definitions(_definitions(tree)["Method"])
    assert [hook for hook in hooks if not {hook, f"{hook}()"} & spans] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_prose_has_short_lines(page: Path):
    lines = prose_lines(page.read_text(encoding="utf-8"))
    assert [line for line in lines if len(line) > PROSE_WIDTH] == []


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_shown_modules_exist(page: Path):
    names = re.findall(r"python -m (benchmarks[\w.]*)", page.read_text(encoding="utf-8"))
    places = [ROOT / name.rstrip(".").replace(".", "/") for name in names]
    assert [place for place in places if not place.with_suffix(".py").is_file()] == []


def test_readme_names_every_method_and_data_set():
    spans = code_spans((ROOT / "README.md").read_text(encoding="utf-8"))
    assert {*METHODS, *SOURCES} - spans == set()


def test_reference_describes_every_public_name():
    pages = (ROOT / "docs" / "reference").glob("*.md")
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    described = set(re.findall(r"^\.\. [\w:]+:: fedquilt\.(\w+)$", text, re.MULTILINE))
    assert described == set(fedquilt.__all__)


def test_missing_names_are_found():
    text = (
        "`training/rounds.py:run_rounds`, `core/totals.py:Accumulator.add`, `methods/`, "
        "`broadcast()`, `x = 1`, "
        "`training/rounds.py:run_circles`, `core/totals.py:Accumulator.subtract`, "
        "`nowhere.py`, `metods/`, "
        "`broadcats()`\n```\n`in_a_block.py`\n```\n"
    )
    assert missing_names(text) == {
        "training/rounds.py:run_circles",
        "core/totals.py:Accumulator.subtract",
        "nowhere.py",
        "metods/",
        "broadcats()",
    }


def test_prose_is_told_from_tables_blocks_and_targets():
    text = "one\n| a table |\n```{toctree}\nblock\n```\n- [link](target.md#place)\n"
    assert prose_lines(text) == ["one", "", "- [link]"]
