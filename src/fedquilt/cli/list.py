"""``fedquilt list``: list methods, datasets, recipes and the like."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedquilt.cli.console import print_json, results
from fedquilt.cli.options import AsJson
from fedquilt.core.errors import UserError, nearest
from fedquilt.core.wording import counted
from fedquilt.methods import METHODS
from fedquilt.recipes.catalogue import KINDS, Entry, entries, recipe_paths
from fedquilt.recipes.source_docs import Field
from fedquilt.recipes.what_leaves import what_leaves
from fedquilt.reports.tables import new_table

Kind = Annotated[str, typer.Argument(metavar="|".join(KINDS), help="What to list.")]
Names = Annotated[list[str] | None, typer.Argument(metavar="NAME...", help="Only these.")]
Verbose = Annotated[
    bool,
    typer.Option("--verbose", "-v", help="Also show settings, variants and what leaves a client."),
]


def list_entries(
    kind: Kind, names: Names = None, verbose: Verbose = False, as_json: AsJson = False
) -> None:
    """List methods, datasets, partitions, annotations, recipes or papers' tables and figures."""
    chosen = _chosen(kind, names or [])
    if as_json:
        print_json([{**entry.to_dict(), **_sent(kind, entry, verbose)} for entry in chosen])
    elif verbose:
        for entry in chosen:
            _show(kind, entry)
        _show_groups(chosen)
    else:
        results.print(_table(kind, chosen))


def _chosen(kind: str, names: list[str]) -> list[Entry]:
    found = {entry.name: entry for entry in entries(kind)}
    for name in names:
        if name not in found:
            raise UserError(f"there is no {name!r} among the {kind}{nearest(name, found)}")
    return [found[name] for name in names] or list(found.values())


def _sent(kind: str, entry: Entry, verbose: bool) -> Mapping[str, Any]:
    if kind != "methods" or not verbose:
        return {}
    return _facts(entry.name)


def _facts(method: str) -> Mapping[str, Any]:
    """What leaves a client, as written down, or read from the method of another package."""
    if method in METHODS:
        facts: Mapping[str, Any] = what_leaves()[method]
        return facts
    from fedquilt.deploy.server.unannotated_rows import what_leaves_a_client

    return what_leaves_a_client(method)


def _table(kind: str, chosen: list[Entry]) -> Table:
    table = new_table(kind.capitalize(), "name")
    table.columns[0].no_wrap = True
    table.add_column("idea", ratio=1)
    about = {"methods": "paper", "recipes": "what", "tables": "what it has and needs"}
    table.add_column(about.get(kind, "about"), ratio=1)
    for entry in chosen:
        table.add_row(Text(entry.name, style="bold"), Text(entry.idea), Text(entry.about))
    commands = {
        "recipes": "fedquilt run NAME runs one; --verbose shows them",
        "tables": "fedquilt reproduce NAME runs one; --verbose shows data, rows and numbers",
    }
    table.caption = commands.get(kind, f"fedquilt list {kind} NAME --verbose shows the settings")
    return table


def _show(kind: str, entry: Entry) -> None:
    results.print(Text(entry.name, style="bold underline"))
    for line in (entry.idea, entry.about):
        results.print(Padding(Text(line), (0, 0, 0, 2)))
    if kind == "recipes":
        text = recipe_paths()[entry.name].read_text(encoding="utf-8")
        results.print(Text(f"\n{text}"), soft_wrap=True)
    if kind == "tables":
        _show_published(entry.facts)
    if entry.fields:
        results.print(_settings_table("Settings", entry.fields))
    for name, settings in entry.variants.items():
        changed = ", ".join(f"{key} = {value}" for key, value in settings.items())
        results.print(Padding(Text(f'variant = "{name}": {changed}'), (0, 0, 1, 2)))
    if kind == "methods":
        _show_sent(entry.name)


def _show_published(facts: Mapping[str, Any]) -> None:
    """Show the data, rows, columns and criterion of a table or figure, and the paper's numbers."""
    lines = [f"--data {name}: {about}" for name, about in facts["data"].items()]
    if "rows" in facts:
        lines.append(f"rows: {', '.join(facts['rows'])}")
    lines += [
        f"columns on {name}: {', '.join(each)}" for name, each in facts.get("columns", {}).items()
    ]
    if "criterion" in facts:
        lines.append(f"criterion: {facts['criterion']}")
    if facts.get("table"):
        lines.append(f"uses the data and recipes of {facts['table']}")
    for line in (*lines, *facts["remarks"]):
        results.print(Padding(Text(line), (0, 0, 0, 2)))
    for data, numbers in _by_data(facts["published"]).items():
        results.print(_published_table(data, numbers, facts.get("rows", {})))


def _by_data(published: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for number in published:
        found.setdefault(number.get("data", ""), []).append(number)
    return found


def _published_table(
    data: str, numbers: Sequence[Mapping[str, Any]], labels: Mapping[str, str]
) -> Table:
    """One line per row and column of the paper's table, one number per metric."""
    metrics = list(dict.fromkeys(number["metric"] for number in numbers))
    table = new_table("Published" + (f", {data}" if data else ""), "row")
    table.add_column("column")
    for metric in metrics:
        table.add_column(metric.removeprefix("auc "), justify="right", overflow="fold")
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for number in numbers:
        spread = "" if number.get("deviation") is None else f" ± {number['deviation']:g}"
        place = cells.setdefault((number["row"], number["column"]), {})
        place[number["metric"]] = f"{number['value']:g}{spread}"
    for (row, column), found in cells.items():
        shown = (found.get(metric, "") for metric in metrics)
        table.add_row(Text(labels.get(row, row)), Text(column), *shown)
    return table


def _settings_table(heading: str, fields: Iterable[Field]) -> Table:
    table = new_table(heading, "setting")
    table.columns[0].no_wrap = True
    for column in ("type", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for field in fields:
        default = "(required)" if field.default is None else field.default.strip("'")
        meaning = field.comment or ("see below" if field.fields else "")
        table.add_row(Text(field.name), Text(_readable(field.type)), Text(default), Text(meaning))
    return table


def _readable(type_text: str) -> str:
    """Return the type with ``a | b`` in place of ``Literal['a', 'b']``."""

    def choices(match: re.Match[str]) -> str:
        return " | ".join(word.strip().strip("'") for word in match[1].split(","))

    return re.sub(r"Literal\[([^\]]*)\]", choices, type_text)


def _show_groups(chosen: list[Entry]) -> None:
    """Show each group of settings that entries share, such as ``training``, once."""
    groups = {
        (field.name, field.type): field.fields
        for entry in chosen
        for field in entry.fields
        if field.fields
    }
    for (name, kind), fields in groups.items():
        results.print(_settings_table(f"{name}: {kind}", fields))


def _show_sent(method: str) -> None:
    facts = _facts(method)
    leaves = facts["leaves_a_client"]
    once = "What leaves a client, once before the first round"
    results.print(_sent_table(once, leaves["once"]))
    every = _sent_table("What leaves a client, every round", leaves["parts"])
    every.caption = f"for {leaves['example']}"
    results.print(every)
    policy = facts["changed_row_of_an_unannotated_class"]
    text = f"in a study, a changed head row of a class its site does not annotate is {policy}"
    results.print(Padding(Text(text), (0, 0, 1, 2)))


def _sent_table(heading: str, parts: Iterable[Mapping[str, Any]]) -> Table:
    table = new_table(heading, "part")
    for column in ("kind", "shape", "weight", "can be summed securely"):
        table.add_column(column)
    for part in parts:
        weight = "" if part["weight_shape"] is None else _shape(part["weight_shape"])
        secure = "yes" if part["can_be_summed_securely"] else "no"
        table.add_row(part["name"], part["kind"], _content(part), weight, secure)
    return table


def _content(part: Mapping[str, Any]) -> str:
    shapes = list(part["tensors"].values())
    if len(shapes) == 1:
        return _shape(shapes[0])
    unit = " per image" if part["per_image"] else ""
    return f"{len(shapes)} tensors, {counted(part['numbers'], 'number')}{unit}"


def _shape(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "one number"
