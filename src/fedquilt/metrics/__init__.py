"""Metrics of multi-label predictions under a mask of known entries."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedquilt.metrics.annotation_status import AnnotationStatus, by_annotation_status
    from fedquilt.metrics.counts import Counts, count
    from fedquilt.metrics.ranking import average_precision, roc_auc
    from fedquilt.metrics.report import Report, nan_to_none, score

__all__ = [
    "AnnotationStatus",
    "Counts",
    "Report",
    "average_precision",
    "by_annotation_status",
    "count",
    "nan_to_none",
    "roc_auc",
    "score",
]

_HOMES = {
    "AnnotationStatus": "annotation_status",
    "by_annotation_status": "annotation_status",
    "Counts": "counts",
    "count": "counts",
    "average_precision": "ranking",
    "roc_auc": "ranking",
    "Report": "report",
    "nan_to_none": "report",
    "score": "report",
}


def __getattr__(name: str) -> Any:
    """Import on first use: the statistics that need numpy only must not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedquilt.metrics' has no attribute {name!r}")
    return getattr(import_module(f"fedquilt.metrics.{_HOMES[name]}"), name)
