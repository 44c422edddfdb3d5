"""Pictures of a run: curves per class, pseudo-labels and the annotation map."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedquilt.reports.best_and_worst import Ends, best_and_worst
from fedquilt.reports.style import (
    MEAN_COLOUR,
    MUTED_COLOUR,
    line_style,
    mean_or_none,
    new_figure,
    percent,
    picture_style,
    prepare_round_axes,
    save,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fedquilt.data.allocation import Allocation
    from fedquilt.data.checks.annotation_map import AnnotationMap
    from fedquilt.data.dataset import MultiLabelDataset
    from fedquilt.runs.finished_run import Run

History = Sequence[Mapping[str, Any]]
MAX_CURVES = 24  # of many classes the best and the worst are drawn
KEYS = {  # panels of the pseudo-label picture, and their value in a record
    (sign, quantity): key.format(side)
    for sign, side in (("present", "positive"), ("absent", "negative"))
    for quantity, key in (
        ("number", "{}s"),
        ("precision (%)", "{}_precision"),
        ("recall (%)", "{}_recall"),
    )
}


def save_run_pictures(run: Run, train: MultiLabelDataset | None = None) -> list[Path]:
    """Draw the pictures that apply into the run's ``pictures`` folder, and return their paths.

    The annotation map needs the training data ``train``.
    """
    folder, drawn = run.folder.pictures, []
    if any(_defined(_class_aucs(record).values()) for record in run.history):
        drawn.append(folder / "class-curves.png")
        save_class_curves(run.history, run.classes, drawn[-1], run.served_round)
    if _pseudo_label_panels(run.history, run.classes):
        drawn.append(folder / "pseudo-labels.png")
        save_pseudo_label_picture(run.history, run.classes, drawn[-1])
    if train is not None:
        drawn.append(folder / "annotation-map.png")
        _save_annotation_map(run.allocation, train, drawn[-1])
    return drawn


def _class_aucs(record: Mapping[str, Any]) -> Mapping[str, float | None]:
    """The AUC of every class: within sites on validation images, else on the test images."""
    found: Mapping[str, float | None] = record.get("validation", record).get("per_class_auc", {})
    return found


def save_class_curves(
    history: History, classes: Sequence[str], path: Path, served: int | None = None
) -> None:
    """Draw the AUC of every class over rounds and their mean in bold; the legend is ranked.

    Of many classes the best and the worst are drawn, and where the middle 80 % of all lie.

    A run with a validation part has curves of validation, with a line at the served round.
    """
    records = [record for record in history if _class_aucs(record)]
    rounds = [record["round"] for record in records]
    curves = {name: [_class_aucs(record)[name] for record in records] for name in classes}
    mean = [mean_or_none(_class_aucs(record).values()) for record in records]
    is_validated = any("validation" in record for record in records)
    what = "within sites, on validation images" if is_validated else "on the test images"
    ends = best_and_worst(classes, lambda name: _last(curves[name]), MAX_CURVES)
    drawn = ends.shown
    with picture_style():
        figure = new_figure(7.6, max(3.8, 0.6 + 0.2 * len(drawn)))
        axes = figure.add_subplot()
        prepare_round_axes(axes, f"AUC per class {what}{_best_and_worst_of(ends, classes)}")
        axes.set_ylabel("AUC (%)")
        if ends.omitted:
            _draw_middle(axes, rounds, [curves[name] for name in classes])
        for position, name in enumerate(drawn):
            label = f"{percent(_last(curves[name]))}  {name}"
            _draw(axes, rounds, curves[name], label, line_style(position, len(rounds)))
        bold = line_style(0, len(rounds)) | {"color": MEAN_COLOUR, "linewidth": 2.6}
        _draw(axes, rounds, mean, f"{percent(_last(mean))}  mean", bold)
        _mark_chance(axes)
        if is_validated and served is not None:
            _mark_served(axes, served)
        handles, labels = axes.get_legend_handles_labels()
        first = [None] * (len(handles) - len(drawn) - 1)  # the middle of all, without a value
        ranked = _ranking([*first, *(_last(curves[name]) for name in drawn), _last(mean)])
        axes.legend(
            [handles[place] for place in ranked],
            [labels[place] for place in ranked],
            title="last round",
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),
        )
        save(figure, path)


def _best_and_worst_of(ends: Ends[str], classes: Sequence[str]) -> str:
    return f",\nthe best and worst of {len(classes):,}" if ends.omitted else ""


def _draw_middle(
    axes: Axes, rounds: Sequence[int], curves: Sequence[Sequence[float | None]]
) -> None:
    """Shade where the middle 80 % of the classes lie in every round."""
    columns = [sorted(each for each in column if each is not None) for column in zip(*curves)]

    def bound(share: float) -> list[float]:
        nowhere = float("nan")
        return [100 * each[int(share * (len(each) - 1))] if each else nowhere for each in columns]

    label = "middle 80 % of all"
    axes.fill_between(
        rounds, bound(0.1), bound(0.9), color=MUTED_COLOUR, alpha=0.25, linewidth=0, label=label
    )


def save_pseudo_label_picture(history: History, classes: Sequence[str], path: Path) -> None:
    """Draw number, precision and recall of pseudo-labels per class over rounds.

    Of many classes those with the most and the fewest at the end are drawn.

    Panels without a value are left out: precision and recall are unknown where the truth is, as in
    a user's own data.
    """
    records = [record for record in history if record.get("pseudo_labels")]
    rounds = [record["round"] for record in records]
    last = records[-1]["pseudo_labels"]
    ends = best_and_worst(
        classes, lambda name: last[name]["positives"] + last[name]["negatives"], MAX_CURVES
    )
    panels = _pseudo_label_panels(history, classes)
    all_classes, classes = classes, ends.shown
    signs, quantities = (list(dict.fromkeys(part)) for part in zip(*panels))
    with picture_style():
        figure = new_figure(
            2 + 3 * len(quantities), max(2.6 * len(signs), 0.6 + 0.2 * len(classes))
        )
        grid = figure.subplots(len(signs), len(quantities), sharex=True, squeeze=False)
        for row, sign in enumerate(signs):
            for column, quantity in enumerate(quantities):
                axes, is_count = grid[row][column], quantity == "number"
                if (sign, quantity) not in panels:
                    axes.remove()
                    continue
                for position, name in enumerate(classes):
                    values = [
                        record["pseudo_labels"][name][KEYS[sign, quantity]] for record in records
                    ]
                    look = line_style(position, len(rounds))
                    _draw(axes, rounds, values, name, look, scale=1 if is_count else 100)
                title = f"filled in as {sign}: {quantity}"
                prepare_round_axes(axes, title, name_rounds=row == len(signs) - 1)
                if not is_count:
                    axes.set_ylim(-3, 103)
        some = f"most and fewest,\nof {len(all_classes):,} classes" if ends.omitted else None
        handles = grid[0][0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside right upper", title=some)
        save(figure, path)


def _pseudo_label_panels(history: History, classes: Sequence[str]) -> list[tuple[str, str]]:
    """Return sign and quantity of the panels that have a value other than a count of 0."""
    records = [record["pseudo_labels"] for record in history if record.get("pseudo_labels")]
    return [
        panel
        for panel, key in KEYS.items()
        if any(_defined(record[name][key] or None for name in classes) for record in records)
    ]


def _defined(values: Iterable[float | None]) -> bool:
    return any(value is not None for value in values)


def _draw(
    axes: Axes,
    rounds: Sequence[int],
    values: Sequence[float | None],
    label: str,
    look: Mapping[str, Any],
    scale: float = 100,
) -> None:
    """Draw one line, with gaps at rounds in which the value is undefined."""
    points = [float("nan") if value is None else scale * value for value in values]
    axes.plot(rounds, points, label=label, **look)


def _mark_chance(axes: Axes) -> None:
    axes.axhline(50, color=MUTED_COLOUR, linewidth=0.8, linestyle=(0, (4, 4)))
    axes.annotate(
        "chance",
        (0.995, 50),
        (0, 2),
        xycoords=axes.get_yaxis_transform(),  # x as a share of the axes, y in percent
        textcoords="offset points",
        ha="right",
        color=MUTED_COLOUR,
        fontsize=7,
    )


def _mark_served(axes: Axes, served: int) -> None:
    axes.axvline(served, color=MUTED_COLOUR, linewidth=1.0)
    axes.annotate(
        f"served: round {served}",
        (served, 0.01),
        (3, 0),
        xycoords=axes.get_xaxis_transform(),  # y as a share of the axes
        textcoords="offset points",
        color=MUTED_COLOUR,
        fontsize=7,
    )


def _last(values: Sequence[float | None]) -> float | None:
    return values[-1] if values else None


def _ranking(values: Sequence[float | None]) -> list[int]:
    """Return the positions by value, best first, undefined ones last."""
    return sorted(range(len(values)), key=lambda p: (values[p] is None, -(values[p] or 0)))


def _save_annotation_map(allocation: Allocation, train: MultiLabelDataset, path: Path) -> None:
    from fedquilt.reports.annotation_picture import save_annotation_picture

    path.parent.mkdir(parents=True, exist_ok=True)
    with picture_style():
        save_annotation_picture(annotation_map_of(allocation, train), path)


def annotation_map_of(allocation: Allocation, train: MultiLabelDataset) -> AnnotationMap:
    """Return the annotation map of a run's clients: of many the largest, and the sum of others."""
    from fedquilt.data.allocation import label_counts
    from fedquilt.data.checks.annotation_map import AnnotationMap
    from fedquilt.reports.annotation_picture import MAX_DRAWN_SITES

    holdings = allocation.holdings
    return AnnotationMap.of_largest(
        classes=allocation.classes,
        sites=[holding.name for holding in holdings],
        images=[len(holding.indices) for holding in holdings],
        counts=label_counts(holdings, train.labels),
        most=MAX_DRAWN_SITES,
    )
