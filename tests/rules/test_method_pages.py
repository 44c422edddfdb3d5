"""The committed method pages are those that the code describes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from support.markdown_pages import differing_pages
from typer.testing import CliRunner

from docs.markdown import MARK
from docs.method_pages import FACTS, INDEX, facts, pages, write_pages
from fedquilt.cli.main import app
from fedquilt.core.registry import find
from fedquilt.methods import METHODS
from fedquilt.recipes.catalogue import find_recipe
from fedquilt.recipes.recipe import read_recipe

COMMITTED = Path(__file__).resolve().parents[2] / "docs" / "methods"


@pytest.fixture(scope="module")
def written() -> dict[str, str]:
    return pages()


def test_committed_pages_are_what_the_code_describes(written: dict[str, str]):
    differing = differing_pages(COMMITTED, written)
    assert not differing, f"{', '.join(differing)} in docs/methods: run `make docs`"


def test_committed_facts_are_what_the_methods_send():
    assert FACTS.read_text(encoding="utf-8") == facts(), f"{FACTS.name}: run `make docs`"


def test_page_tells_settings_variants_and_what_is_sent(written: dict[str, str]):
    page = written["fedmlp.md"]
    assert "| `warmup_rounds` | `int` | `50` | t_1: rounds on annotated labels only" in page
    assert '| `rounding` | `"floor"` or `"ceil"` | `"floor"` |' in page
    assert "| `positive_weight_cap` | `float` or `none` | `none` |" in page
    assert '| `feature_view` | `"plain"` | `"weak"` |' in page  # of the variant
    assert "| `prototypes` | Mean | 5 x 2 x 64 | 640 | 5 x 2 | yes |" in page
    assert "Deviations: " in page  # the docstring in full
    assert "``" not in page.replace("```", "")


def test_page_ends_with_what_is_written_by_hand(written: dict[str, str]):
    page = written["quilt.md"]
    assert page.index("## Run it") < page.index("## Why it works") < page.index("## When not to")
    assert "](../results/quilt.md)" in page
    assert "## Why it works" not in written["fedavg.md"]


def test_page_of_a_method_that_sends_no_weights_does_not_speak_of_them(written: dict[str, str]):
    assert "`training_loss`" in written["local-only.md"]
    assert "`body`" not in written["local-only.md"]
    assert "`buffers`" not in written["local-only.md"]


def test_index_links_every_page_and_explains_shared_settings(written: dict[str, str]):
    for name in METHODS:
        assert f"[`{name}`]({name}.md)" in written[INDEX]
    assert "## Settings of `training`" in written[INDEX]
    assert "| `weight_decay` | `float` | `0.0` |" in written[INDEX]


@pytest.mark.parametrize("name", METHODS)
def test_commands_on_a_page_run_that_method(name: str, written: dict[str, str]):
    block = written[f"{name}.md"].rpartition("## Run it")[2].split("```")[1]
    first, *rest = block.strip().splitlines()
    _, verb, recipe, *options = shlex.split(first)
    assert verb == "run"
    overrides = [option for option in options if option != "--set"]
    method = read_recipe(find_recipe(recipe), overrides).method
    assert type(method) is find("method", METHODS, name)
    assert method.needs_complete_labels == (not rest)  # own data may have blank labels
    for line in rest:
        assert line.endswith(f"--method {name}")


def test_pages_of_methods_that_are_gone_are_removed_and_other_files_kept(tmp_path: Path):
    (tmp_path / "gone.md").write_text(f"{MARK}\n\n# Gone\n")
    (tmp_path / "own.md").write_text("# Written by hand\n")
    write_pages(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*pages(), "own.md"}


def test_run_has_the_options_that_the_pages_use():
    text = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200"}).stdout
    for option in ("--data", "--labels", "--site-column", "--method", "--set"):
        assert option in text
