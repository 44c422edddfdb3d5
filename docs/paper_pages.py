"""One Markdown page per paper with tables, from the code: ``python -m docs.paper_pages FOLDER``.

A page has the setting of each table as our recipe states it, where it differs from the paper's, and
the paper's numbers beside ours, which come from ``benchmarks/results/tables``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from docs.markdown import MARK, bullets, markdown_table, prose, wrapped
from docs.our_numbers import Ours, counts, files, note, our_runs, sources
from fedquilt.core.atomic_files import write_bytes
from fedquilt.methods import METHODS
from fedquilt.recipes.papers import TABLES, find_table
from fedquilt.recipes.papers.displays import DISPLAYS
from fedquilt.recipes.papers.published_numbers import AVERAGE, Reference
from fedquilt.recipes.papers.table import Cell, DataChoice, PublishedTable, Row
from fedquilt.recipes.source_docs import read_class

INDEX = "index.md"
PAPERS = ("fedmlp", "fedlsm", "fednca-ml", "fedlgt")  # names of methods, too
NO_NUMBER = "-"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    return {f"{paper}.md": _page(paper) for paper in PAPERS} | {INDEX: _index()}


def write_pages(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        write_bytes(folder / name, text.encode())


def _index() -> str:
    rows = []
    for paper in PAPERS:
        tables, figures = _tables(paper), _figures(paper)
        runs = sum(bool(our_runs(name)) for name in tables)
        about = read_class(METHODS[paper]).module_docstring
        rows.append((f"[{about}]({paper}.md)", len(tables), len(figures), runs))
    columns = ("paper", "tables", "figures and counts", "tables with runs of ours")
    blocks = [
        MARK,
        "# Papers",
        wrapped(
            "Papers whose tables and figures are recipes here: what each setting is, where it "
            "differs from the paper's, and the numbers side by side. "
            "[Published tables](../guides/reproduce.md) explains the command, "
            "[results](../results/index.md) say what came out."
        ),
        markdown_table(columns, rows),
        wrapped(
            "The papers of the other methods print no tables that were at hand; where a method "
            "differs from its paper is on [its page](../methods/index.md)."
        ),
        "\n".join(["```{toctree}", ":hidden:", "", *PAPERS, "```"]),
    ]
    return "\n\n".join(blocks) + "\n"


def _tables(paper: str) -> list[str]:
    return [name for name in TABLES if name.startswith(f"{paper}/")]


def _figures(paper: str) -> list[str]:
    return [name for name in DISPLAYS if name.startswith(f"{paper}/")]


def _page(paper: str) -> str:
    source = read_class(METHODS[paper])
    names = _tables(paper)
    remarks = dict.fromkeys(remark for name in names for remark in find_table(name).remarks)
    _, _, deviations = source.docstring.partition("Deviations")
    blocks = [
        MARK,
        f"# {source.module_docstring.partition('(')[0].strip()}",
        wrapped(f"{source.module_docstring} The method: [`{paper}`](../methods/{paper}.md)."),
        "## Deviations",
        "Of the recipes from the paper's experiments:",
        bullets(remarks),
        "Of the method from the paper or its code:",
        prose(f"Deviations{deviations}"),
    ]
    for name in names:
        blocks += _section(name)
    blocks += _displays(paper)
    return "\n\n".join(blocks) + "\n"


def _section(name: str) -> list[str]:
    table = find_table(name)
    number = name.rpartition("/table")[2]
    blocks = [f"## Table {number}", wrapped(f"{table.title}. `{name}`; {_criterion(table)}.")]
    for choice in _papers_choices(table):
        blocks += [f"### Setting on {choice.name}", *_setting(find_table(name, choice.name))]
    blocks += ["### Rows", _rows(table), "### Numbers"]
    ours = our_runs(name)
    for choice in _papers_choices(table):
        blocks += _numbers(find_table(name, choice.name), choice.references, ours)
    return [*blocks, *sources(ours)]


def _criterion(table: PublishedTable) -> str:
    return f"its criterion: {table.criterion.words(table.labels)}"


def _papers_choices(table: PublishedTable) -> list[DataChoice]:
    """The first choice for each of the paper's data sets; others are the same at another size."""
    found: dict[str, DataChoice] = {}
    for choice in table.choices.values():
        for reference in choice.references:
            if reference.same_data:
                found.setdefault(reference.label, choice)
    return list(found.values())


def _setting(table: PublishedTable) -> list[str]:
    """The settings that all rows share, then what the columns change."""
    first = table.choice.columns[0]
    bare = Row(name="", label="", settings={})
    shared = table.settings(Cell(bare, first), 0, Path("FOLDER"))
    shared.pop("seed")
    lines = [f"{key} = {_toml(value)}" for key, value in shared.items()]
    blocks = ["```toml\n" + "\n".join(lines) + "\n```"]
    if len(table.choice.columns) > 1:
        rows = [(each.label, _flat(each.settings)) for each in table.choice.columns]
        blocks.append(markdown_table(("column", "settings"), rows))
    return blocks


def _rows(table: PublishedTable) -> str:
    rows = [(f"`{row.name}`", row.label, row.kind, _flat(row.settings)) for row in table.rows]
    return markdown_table(("row", "label", "kind", "settings"), rows)


def _flat(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"`{key} = {_toml(value)}`" for key, value in settings.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


def _numbers(
    table: PublishedTable, references: Iterable[Reference], ours: Sequence[Ours]
) -> list[str]:
    """A table for each metric, or one for all metrics if the paper has one column."""
    columns = {column.name: column.label for column in table.choice.columns}
    has_average = len(columns) > 1
    columns |= {AVERAGE: AVERAGE} if has_average else {}
    metrics = {metric.name: metric.label for metric in table.metrics}
    blocks = []
    for reference in references:
        groups = [[each] for each in metrics] if has_average else [list(metrics)]
        for group in groups:
            places = [(column, metric) for metric in group for column in columns]
            heads = [
                f"{reference.label}: {columns[column] if has_average else metrics[metric]}"
                for column, metric in places
            ]
            theirs = [(each, place) for each in ours for place in _places(each, group)]
            heads += [f"ours, {each.data}: {_head(table, *place)}" for each, place in theirs]
            body = []
            for row in table.rows:
                cells = [_printed(reference, row, *place) for place in places]
                cells += [
                    each.numbers.get((row.label, *place), NO_NUMBER) for each, place in theirs
                ]
                if any(cell != NO_NUMBER for cell in cells):
                    body.append((row.label, *cells))
            title = f"{metrics[group[0]]} (%)" if has_average else "(%)"
            blocks.append(markdown_table((title, *heads), body))
    return blocks


def _places(ours: Ours, metrics: Sequence[str]) -> list[tuple[str, str]]:
    """The columns and metrics of our numbers, in the order of the file."""
    found = [(column, metric) for _, column, metric in ours.numbers if metric in metrics]
    return list(dict.fromkeys(found))


def _head(table: PublishedTable, column: str, metric: str) -> str:
    if len(table.choice.columns) == 1:
        return next(each.label for each in table.metrics if each.name == metric)
    return column.replace("-", " ")


def _printed(reference: Reference, row: Row, column: str, metric: str) -> str:
    value = reference.value(row.name, column, metric)
    deviation = reference.deviation(row.name, column, metric)
    if value is None:
        return NO_NUMBER
    return f"{value:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def _displays(paper: str) -> list[str]:
    found = [DISPLAYS[name] for name in _figures(paper)]
    if not found:
        return []
    rows = [(f"`fedquilt reproduce {each.name}`", each.title, note(each.name)) for each in found]
    remarks = dict.fromkeys(remark for each in found for remark in each.remarks)
    notes = bullets(remarks)
    blocks = ["## Figures and counts", markdown_table(("command", "what", "numbers"), rows), notes]
    for each in found:
        for path in files(each.name):
            blocks += [f"### {path.stem}", counts(path)]
    return blocks


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
