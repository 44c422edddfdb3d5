"""Which reporting items of TRIPOD+AI and CLAIM a report answers, and where.

Topics in our words and without item numbers: numbers are those of the official forms only.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Coverage = Literal["yes", "partly", "card"]
WORDS = {
    "yes": "in this report",
    "partly": "in part",
    "card": "only if stated in the card",
}


class Item(NamedTuple):
    """One topic, the guidelines that ask for it, the sections that answer it, and how far."""

    topic: str
    guidelines: str
    sections: tuple[str, ...]  # ids
    coverage: Coverage


BOTH, TRIPOD, CLAIM = "TRIPOD+AI, CLAIM", "TRIPOD+AI", "CLAIM"
ITEMS = (
    Item("Intended use and users", BOTH, ("card",), "card"),
    Item("Sources of data, setting and dates", BOTH, ("card",), "card"),
    Item("Eligibility of participants", BOTH, ("card",), "card"),
    Item("Number of participants and of those with each finding", BOTH, ("data", "classes"), "yes"),
    Item("Partition of the data, at the level of patients", BOTH, ("data",), "yes"),
    Item("Clusters: sites, and several images of a patient", TRIPOD, ("data", "sites"), "partly"),
    Item("Missing data: what was not annotated", CLAIM, ("data",), "yes"),
    Item("Reference standard and annotators", BOTH, ("card",), "card"),
    Item("Class imbalance", TRIPOD, ("data", "classes"), "yes"),
    Item("Model specification and training", BOTH, ("reproduce",), "yes"),
    Item("Choice of the final model", CLAIM, ("rounds",), "yes"),
    Item("Measures of performance with confidence intervals", BOTH, ("classes",), "partly"),
    Item("Thresholds and classification", BOTH, ("classes",), "partly"),
    Item("Calibration", TRIPOD, ("curves",), "partly"),
    Item("Heterogeneity between sites", TRIPOD, ("sites",), "partly"),
    Item("Internal and external testing", CLAIM, ("data", "sites"), "partly"),
    Item("Failures and poor inputs", BOTH, ("summary", "classes"), "partly"),
    Item("Fairness between groups of people", TRIPOD, ("card",), "card"),
    Item("Limitations", BOTH, ("summary", "card"), "partly"),
    Item("Code, versions and seeds", BOTH, ("reproduce",), "yes"),
    Item("Ethics, funding and interests", BOTH, ("card",), "card"),
)
