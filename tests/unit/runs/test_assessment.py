"""Assessment by site: which images belong to a site, and what is undefined there."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedquilt.data.dataset import MultiLabelDataset
from fedquilt.data.partitions.iid import Iid
from fedquilt.data.partitions.natural import Natural
from fedquilt.metrics.evaluation import Evaluation
from fedquilt.runs.assessment import SiteAssessment, SiteSamples, reports_by_site, samples_by_site
from fedquilt.runs.intervals import site_intervals
from fedquilt.runs.scores import Scores

#             site, mass, cyst (None: not annotated), probability of mass, of cyst
IMAGES = (
    ("East", 1, None, 0.9, 0.9),
    ("West", 1, 0, 0.2, 0.1),
    ("East", 0, None, 0.6, 0.9),
    ("West", 0, 0, 0.4, 0.2),
    ("East", 1, None, 0.4, 0.1),
    ("West", 0, 0, 0.1, 0.3),
    ("South", 1, 1, 0.5, 0.5),
)
PROBABILITIES = torch.tensor([image[3:] for image in IMAGES])
CLIENTS = ("East", "North", "West")  # South was too small, North has no test image
SITES = {"East": [0, 2, 4], "North": [], "West": [1, 3, 5]}


def images(sites: tuple[str, ...] | None) -> MultiLabelDataset:
    entries = [image[1:3] for image in IMAGES]
    labels = [[entry or 0 for entry in sample] for sample in entries]
    return MultiLabelDataset(
        images=torch.zeros(len(IMAGES), 1, 4, 4, dtype=torch.uint8),
        labels=torch.tensor(labels, dtype=torch.uint8),
        known=torch.tensor([[entry is not None for entry in sample] for sample in entries]),
        classes=("mass", "cyst"),
        ids=tuple(map(str, range(len(IMAGES)))),
        groups=tuple(image[0] for image in IMAGES),
        sites=sites,
    )


TEST = images(tuple(image[0] for image in IMAGES))


def rows() -> SiteSamples:
    return samples_by_site(TEST, Natural(), CLIENTS)


def test_each_client_has_the_test_images_of_its_site():
    assert {name: own.tolist() for name, own in rows().items()} == SITES


@pytest.mark.parametrize(
    ("test", "partition", "clients"),
    [
        (images(None), Natural(), CLIENTS),
        (TEST, Iid(clients=3), CLIENTS),
        (TEST, Natural(by="patient"), CLIENTS),
        (TEST, Natural(), ("Centre", "North")),  # all test images come from elsewhere
    ],
)
def test_no_samples_if_clients_are_not_the_sites_of_test_images(test, partition, clients):
    assert not samples_by_site(test, partition, clients)


def test_a_sites_report_uses_its_images_only():
    reports = reports_by_site(PROBABILITIES, TEST, rows(), Evaluation())
    # East, mass: positives 0.9 and 0.4, negative 0.6; one of two pairs is ordered correctly, and at
    # a threshold of 0.5 one of two positives is found and the negative is missed. West, mass: the
    # positive 0.2 is above one of the negatives 0.4 and 0.1, and nothing is predicted.
    assert reports["East"].per_class["auc"][0] == 0.5
    assert reports["East"].per_class["bacc"][0] == 0.25
    assert reports["West"].per_class["auc"][0] == 0.5
    assert reports["West"].per_class["bacc"][0] == 0.5
    # In the order 0.9, 0.6, 0.4 the positives have precision 1 and 2/3, each half of the recall.
    assert reports["East"].per_class["ap"][0] == pytest.approx(5 / 6)
    assert reports["East"].per_class["positives"] == (2, 0)
    assert reports["West"].per_class["negatives"] == (2, 3)


def test_the_runs_threshold_and_strictness_are_used():
    at = Evaluation(threshold=0.4)
    above = Evaluation(threshold=0.4, strict=True)
    recall = [
        reports_by_site(PROBABILITIES, TEST, rows(), settings)["East"].per_class["recall"][0]
        for settings in (at, above)
    ]
    assert recall == [1.0, 0.5]  # the positive 0.4 is at the threshold


def test_an_undefined_metric_is_null_and_excluded_from_averages():
    reports = reports_by_site(PROBABILITIES, TEST, rows(), Evaluation())
    block = SiteAssessment("own", reports, {name: len(own) for name, own in SITES.items()})
    stored = json.loads(json.dumps(block.to_dict(), allow_nan=False))
    east, north, west = (stored["reports"][name] for name in CLIENTS)
    assert east["per_class"]["f1"] == [0.5, None]  # East does not annotate cysts
    assert east["averages"]["macro_f1"] == 0.5  # not 0.25
    assert west["per_class"]["auc"] == [0.5, None]  # no cyst at West
    assert west["defined"]["macro_auc"] == 1
    assert set(north["averages"].values()) == {None}
    assert stored["images"] == {"East": 3, "North": 0, "West": 3}


def test_mean_and_deviation_are_over_clients_with_a_defined_metric():
    reports = reports_by_site(PROBABILITIES, TEST, rows(), Evaluation())
    block = SiteAssessment("own", reports, {}).to_dict()
    # BACC 0.25 at East and 0.5 at West: mean 0.375, deviation 0.125 * sqrt(2).
    assert block["mean"]["bacc"] == 0.375
    assert block["deviation"]["bacc"] == pytest.approx(0.125 * 2**0.5)
    assert block["client_count"]["bacc"] == 2
    alone = SiteAssessment("own", {"East": reports["East"]}, {}).to_dict()
    assert alone["deviation"]["bacc"] is None
    without_images = SiteAssessment("own", {"North": reports["North"]}, {}).to_dict()
    assert without_images["mean"]["bacc"] is None
    assert without_images["client_count"]["bacc"] == 0


def test_a_class_without_negatives_is_excluded_from_a_sites_averages():
    """Of positives alone AP is 1.0, and F1 too if all are called: 100 % of nothing."""
    test = replace(TEST, labels=torch.ones_like(TEST.labels))
    report = reports_by_site(torch.ones(7, 2), test, rows(), Evaluation())["West"]
    assert report.per_class["ap"] == (1.0, 1.0)
    assert report.defined == dict.fromkeys(report.defined, 0)
    stored = report.to_dict()
    for name in ("macro_auc", "map", "bacc", "macro_f1", "class_precision", "class_recall"):
        assert stored["averages"][name] is None, name
    assert stored["averages"]["class_f1"] is None
    assert stored["averages"]["overall_f1"] == 1.0  # of all calls, which are right


def test_the_auc_over_sites():
    """Two sites with the same images have no variance between them; a third is too small."""
    positive = np.tile([1, 1, 0, 0], 10)[:, None]
    logits = (np.arange(40) % 7 + 2 * positive[:, 0]).astype(np.float32)[:, None]
    twice = np.concatenate([logits, logits, logits[:4]])
    labels = np.concatenate([positive, positive, positive[:4]]).astype(np.uint8)
    scores = Scores(
        part="test",
        round=1,
        classes=("mass",),
        ids=tuple(map(str, range(84))),
        labels=labels,
        known=np.ones((84, 1), dtype=bool),
        logits={"global": twice},
    )
    sites = {
        "East": torch.arange(40),
        "West": torch.arange(40, 80),
        "South": torch.arange(80, 84),
    }
    found = site_intervals(scores, sites, dict.fromkeys(sites, "global"))
    east, west = (found["intervals"][site]["per_class"]["auc"] for site in ("East", "West"))
    assert east == west
    over = found["auc_over_sites"]["mass"]
    assert (over["sites"], over["between"]) == (2, 0)
    assert over["mean"] == pytest.approx(east["value"][0])
    assert found["intervals"]["South"]["positives"] == [2]
