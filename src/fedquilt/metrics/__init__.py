"""Metrics of multi-label predictions under a mask of known entries."""

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
