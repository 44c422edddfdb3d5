"""Metrics by annotation status: on the classes a client annotates, and on the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from fedquilt.core.errors import UserError
from fedquilt.metrics.averaging import defined_only, mean
from fedquilt.metrics.report import SELECTED_AVERAGES, Report


class AnnotationStatus(TypedDict):
    """Averages by status, ``"annotated"`` or ``"unannotated"``, then by name."""

    clients: dict[str, dict[str, dict[str, float]]]  # by client first; NaN if undefined
    mean: dict[str, dict[str, float]]  # over the clients where it is defined
    client_count: dict[str, dict[str, int]]  # the number of those clients


def by_annotation_status(
    report_of_client: Mapping[str, Report] | Report, annotated: Mapping[str, Sequence[bool]]
) -> AnnotationStatus:
    """Average each client's metrics over the classes it annotates and over the others.

    Args:
        report_of_client: a report per client, or one report if all share a global model.
        annotated: for each client, whether it annotates each class.
    """
    if isinstance(report_of_client, Report):
        report_of_client = dict.fromkeys(annotated, report_of_client)
    if report_of_client.keys() != annotated.keys():
        raise UserError(
            f"found reports of the clients {sorted(report_of_client)} but annotations of "
            f"{sorted(annotated)}; give both for every client"
        )
    found: dict[tuple[int, bytes], dict[str, dict[str, float]]] = {}
    clients = {}
    for client, report in report_of_client.items():
        mask = annotated[client]
        key = (id(report), bytes(mask))  # clients that share a report and annotate the same classes
        if key not in found:
            found[key] = {
                "annotated": report.over_classes(mask),
                "unannotated": report.over_classes([not is_annotated for is_annotated in mask]),
            }
        clients[client] = found[key]
    kept = {
        status: _defined_values(client[status] for client in clients.values())
        for status in ("annotated", "unannotated")
    }
    return {
        "clients": clients,
        "mean": {s: {name: mean(v) for name, v in kept[s].items()} for s in kept},
        "client_count": {s: {name: len(v) for name, v in kept[s].items()} for s in kept},
    }


def _defined_values(averages: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    clients = list(averages)
    return {name: defined_only(client[name] for client in clients) for name in SELECTED_AVERAGES}
