"""A comparison as CSV, Markdown or LaTeX: methods first, then the differences that were tested."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from fedquilt.core.errors import UserError
from fedquilt.reports.style import UNDEFINED, percent, title
from fedquilt.reports.tables import with_interval

Format: TypeAlias = Literal["csv", "markdown", "latex"]
FORMATS: tuple[str, ...] = get_args(Format)
Rows = list[list[str]]
CSV_COLUMNS = (
    *("kind", "name", "minus", "class", "metric", "value", "low", "high", "deviation"),
    *("seeds", "p", "p_holm", "significantly_ahead"),
)
LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
}
FORMULAS = ("=", "+", "-", "@", "\t")  # a spreadsheet would run a cell that begins so


def written(comparison: Mapping[str, Any], form: str) -> str:
    """Return the comparison as text in one of ``FORMATS``."""
    if form == "csv":
        return _csv(comparison)
    if form not in FORMATS:
        raise UserError(f"unknown format {form!r}; expected {', '.join(FORMATS)}")
    tables = [_methods(comparison)]
    if any(test["macro_auc"]["value"] is not None for test in comparison["tests"]):
        tables.append(_differences(comparison))
    write = _markdown if form == "markdown" else _latex
    words = [test["words"] for test in comparison["tests"]]
    if form == "latex":
        words = [f"% {line}" for line in words]
    return "\n\n".join([*(write(*table) for table in tables), "\n".join(words)]).rstrip() + "\n"


def _methods(comparison: Mapping[str, Any]) -> tuple[list[str], Rows]:
    header = ["method", "seeds", *(f"{title(name)} (%)" for name in comparison["metrics"])]
    rows = []
    for group in comparison["groups"]:
        cells = []
        for name in comparison["metrics"]:
            summary = group["metrics"][name]
            deviation = summary["deviation"]
            spread = "" if deviation is None else f" ± {percent(deviation)}"
            star = "*" if comparison["ahead"][name] == group["label"] else ""
            cells.append(f"{percent(summary['mean'])}{spread}{star}")
        rows.append([group["label"], str(len(group["seeds"])), *cells])
    return header, rows


def _differences(comparison: Mapping[str, Any]) -> tuple[list[str], Rows]:
    header = ["first minus second", "AUC difference [95 % interval] (points)", "p", "p (Holm)"]
    rows = []
    for test in comparison["tests"]:
        found = test["macro_auc"]
        p_values = [UNDEFINED if found[p] is None else f"{found[p]:.2g}" for p in ("p", "p_holm")]
        pair = f"{test['one']} - {test['other']}"
        rows.append([pair, with_interval(found["value"], found), *p_values])
    return header, rows


def _markdown(header: Sequence[str], rows: Rows) -> str:
    lines = [list(header), ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _latex(header: Sequence[str], rows: Rows) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(_escaped(cell) for cell in cells) + r" \\"

    columns = "l" + "r" * (len(header) - 1)
    body = [line(header), r"\midrule", *map(line, rows)]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body,
                      r"\bottomrule", r"\end{tabular}"])  # fmt: skip


def _escaped(cell: str) -> str:
    signs = "".join(LATEX.get(sign, sign) for sign in cell)
    return signs.replace(" ± ", r" $\pm$ ").replace("*", r"$^{*}$").replace("–", "--")


def _csv(comparison: Mapping[str, Any]) -> str:
    content = io.StringIO()
    writer = csv.DictWriter(content, CSV_COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    for row in _csv_rows(comparison):
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return content.getvalue()


def _csv_rows(comparison: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for group in comparison["groups"]:
        own = {"kind": "method", "name": group["label"], "seeds": len(group["seeds"])}
        for metric, summary in group["metrics"].items():
            ahead = comparison["ahead"][metric] == group["label"]
            rows.append(own | _summary(summary) | {"metric": metric, "significantly_ahead": ahead})
        for name, summary in group["classes"].items():
            ahead = comparison["class_ahead"].get(name) == group["label"]
            cells = {"metric": comparison["class_metric"], "class": name}
            rows.append(own | _summary(summary) | cells | {"significantly_ahead": ahead})
    for test in comparison["tests"]:
        pair = {"kind": "difference", "name": test["one"], "minus": test["other"]}
        pair["seeds"] = test["seeds"]
        tested = {"macro_auc": test["macro_auc"], **test["classes"]}
        for name, found in tested.items():
            if found["value"] is None:
                continue
            place = {"metric": name} if name == "macro_auc" else {"metric": "auc", "class": name}
            numbers = {key: found[key] for key in ("value", "low", "high", "p", "p_holm")}
            rows.append(pair | place | numbers | {"significantly_ahead": found["ahead"]})
    return rows


def _summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    return {"value": summary["mean"], "deviation": summary["deviation"]}


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and value.startswith(FORMULAS):
        return f"'{value}"
    return "" if value is None else value
