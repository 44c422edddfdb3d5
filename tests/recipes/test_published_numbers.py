"""The numbers that papers print, as the tables show them."""

from __future__ import annotations

import pytest

from fedquilt.recipes.papers import find_table
from fedquilt.recipes.papers.published_numbers import AVERAGE


@pytest.mark.parametrize(
    ("name", "data", "row", "column", "numbers"),
    [
        ("fedmlp/table1", "ich", "fedmlp", "missing-4", (80.07, 88.47, 59.31)),
        ("fedmlp/table1", "ich", "rscfed", "missing-3", (67.55, 85.40, 61.43)),
        ("fedmlp/table2", "chestxray14", "fednoro", "missing-5", (67.68, 74.75, 25.97)),
        ("fedmlp/table2", "chestxray14", "cbafed", AVERAGE, (58.68, 68.03, 19.54)),
        ("fedmlp/table3", "ich", "mld", "missing-4", (73.41, 82.32, 46.74)),
        ("fedmlp/table3", "chestxray14", "st", "missing-7", (70.08, 75.76, 22.48)),
        ("fedlsm/table3", "chestxray14", "without-ude", "identified-3", (68.9,)),
        (
            "fedlsm/table3",
            "ham10000",
            "without-awpa",
            "identified-3",
            (95.0, 83.7, 67.6, 78.3, 64.6),
        ),
        ("fedlsm/table2", "ham10000", "fedpu", "identified-3", (92.7, 79.6, 55.0, 69.9, 57.0)),
        ("fedlsm/table2", "ham10000", "fedlsm", "identified-3", (96.0, 84.6, 71.3, 76.3, 69.9)),
        ("fednca-ml/table1", "cifar10", "fednca-ml", "beta-0.5", (87.55, 48.17, 87.00, 48.61)),
        ("fednca-ml/table1", "cifar10", "fedlgt", "beta-0.1", (80.54, 36.30, 80.65, 39.24)),
        ("fednca-ml/table2", "dermamnist", "fedavg", "beta-0.1", (83.88, 42.79, 87.23, 62.81)),
        ("fednca-ml/table3", "pascal-voc", "fedlgt", "beta-0.01", (91.25, 56.53, 91.46, 63.51)),
        ("fednca-ml/table4", "chestxray14", "fednca-ml", "beta-0.5", (70.55, 71.28)),
        ("fednca-ml/table5", "dermamnist", "all", "beta-0.1", (87.69, 51.38, None, None)),
        ("fednca-ml/table6", "dermamnist", "learnable-etf", "beta-0.1", (85.39, 46.92, None, None)),
        ("fedlgt/table4", "flair", "ca-mle", "all", (56.1, 45.0, 88.3, 78.4)),
        ("fednca-ml/table7", "cifar10", "etf", "beta-0.5", (83.44, 15.29, None, None)),
    ],
)
def test_published_numbers(name: str, data: str, row: str, column: str, numbers: tuple[float, ...]):
    table = find_table(name, data)
    (reference,) = table.choice.references
    assert reference.same_data
    found = tuple(reference.value(row, column, metric.name) for metric in table.metrics)
    assert tuple(a if b is not None else None for a, b in zip(found, numbers)) == numbers
    assert None not in found


def test_findings_of_fedlsm_have_their_own_numbers():
    table = find_table("fedlsm/table1", "chestxray14")
    (reference,) = table.choice.references
    assert reference.value("moon-star", "identified-3", "macro_auc") == 77.2
    assert reference.value("fedlsm", "identified-3", "macro_auc") == 79.1
    # The card's list of FedLSM's 14 findings.
    found = [reference.value("fedlsm", "identified-3", each.name) for each in table.metrics[1:]]
    assert found == [
        *(72.7, 70.0, 80.4, 90.1, 83.3, 75.7, 74.2, 77.5, 75.5, 84.6, 80.4, 88.4, 85.8, 68.0)
    ]
    assert table.metrics[9].of_class == "Pleural_Thickening"
    assert len(find_table("fedlsm/table1", "digits").metrics) == 1


def test_printed_deviations_are_kept():
    (reference,) = find_table("fednca-ml/table1", "cifar10").choice.references
    assert reference.deviation("centralised", "beta-0.5", "macro_auc") == 0.36
    (reference,) = find_table("fedmlp/table1", "ich").choice.references
    assert reference.deviation("fedmlp", "missing-1", "bacc") is None


@pytest.mark.parametrize(
    ("data", "row", "averages"),
    [
        ("ich", "fedavg", (62.34, 85.31, 55.56)),
        ("ich", "fedfixmatch", (69.44, 83.59, 54.38)),
        ("ich", "fedmlp", (81.73, 90.98, 67.29)),
        ("chestxray14", "fedavg-pl", (58.55, 70.86, 19.90)),
        ("chestxray14", "fedmlp", (68.91, 77.18, 26.50)),
    ],
)
def test_averages_of_the_columns_match_the_paper(data: str, row: str, averages: tuple[float, ...]):
    table = find_table("fedmlp/table1" if data == "ich" else "fedmlp/table2", data)
    (reference,) = table.choice.references
    found = [reference.value(row, AVERAGE, metric.name) for metric in table.metrics]
    assert found == pytest.approx(averages, abs=0.0101)  # the paper averaged unrounded numbers
