"""The report of what would leave a site: shapes, sizes, and what is withheld."""

from __future__ import annotations

import pytest
from support.few_patients import site

from fedquilt.core.errors import UserError
from fedquilt.data.augmentation.views import Preprocessing, Views
from fedquilt.methods.fedalc import FedALC
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.methods.scene_gcn import SceneGCN
from fedquilt.methods.spherefed import SphereFed
from fedquilt.models.spec import ModelSpec
from fedquilt.privacy.disclosure_report import EVERYTHING, LATER, LeavingPart, what_would_leave
from fedquilt.privacy.site_policy import SitePolicy
from fedquilt.training.method import Method
from fedquilt.training.task import Task

CLASSES = ("cyst", "stone", "tumour")


def leaving(method: Method, policy: SitePolicy, **site_settings: bool) -> dict[str, LeavingPart]:
    model = method.model_spec(ModelSpec(backbone="small-cnn"))
    task = Task(
        classes=CLASSES,
        clients=("site", "other"),
        image_shape=(1, 16, 16),
        model=model,
        preprocessing=Preprocessing(views=Views(), mean=model.mean, std=model.std),
        round_count=3,
        seed=0,
    )
    rows = what_would_leave(method, site(**site_settings), task, policy)
    return {row.part: row for row in rows}


def test_every_part_is_a_row():
    rows = leaving(FedMLP(), SitePolicy(min_cell=3))
    assert [(row.part, row.when, row.kind) for row in rows.values()] == [
        ("annotators", "once", "Sum"),
        ("body", "every round", "Mean"),
        ("head", "every round", "Mean"),
        ("prototypes", "every round", "Mean"),
        ("difficulty", "every round", "Mean"),
        ("training_loss", "every round", "Mean"),
    ]
    difficulty = rows["difficulty"]
    assert difficulty.tensors == {"": (3,)}
    assert difficulty.numbers == 3
    assert difficulty.bytes == 3 * 4 + 3 * 8  # float32, and a float64 weight for each
    assert difficulty.to_dict()["refused"] is None


def test_small_groups_are_named():
    """Class 1 has one positive; class 2, which is not annotated, has nothing to withhold."""
    rows = leaving(FedMLP(), SitePolicy(min_cell=3))
    assert rows["prototypes"].suppressed == ("stone",)
    assert rows["annotators"].suppressed == ()
    assert rows["body"].suppressed == rows["training_loss"].suppressed == ()
    assert leaving(FedMLP(), SitePolicy(min_cell=0))["prototypes"].suppressed == ()


def test_records_are_counted_by_image_or_by_patient():
    """Class 0 has 5 images of 3 patients."""
    assert leaving(FedALC(), SitePolicy(min_cell=4))["codes"].suppressed == ("stone",)
    few = leaving(FedALC(), SitePolicy(min_cell=4), patients=True)
    assert few["codes"].suppressed == (EVERYTHING, "cyst", "stone")
    assert few["body"].suppressed == (EVERYTHING,)


def test_what_is_only_known_after_training_is_marked():
    assert leaving(SceneGCN(width=4), SitePolicy(min_cell=3))["scenes"].suppressed == (LATER,)


def test_parts_of_later_rounds_are_rows_without_sizes():
    rows = leaving(SphereFed(), SitePolicy(min_cell=3))
    assert (rows["body"].when, rows["training_loss"].when) == ("most rounds", "every round")
    squares = rows["squares"]
    assert (squares.when, squares.kind, squares.bytes) == ("some rounds", None, None)
    assert squares.suppressed == ("stone",)
    assert "squares" not in leaving(SphereFed(calibrate=False), SitePolicy(min_cell=3))


def test_forbidden_parts_are_rows_too():
    rows = leaving(FedAvg(), SitePolicy(min_cell=3, may_leave=("annotators", "body")))
    assert rows["body"].refused is None
    assert "does not let part 'head' leave" in str(rows["head"].refused)


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (SitePolicy(), "client 'site' has 8 images, and min_cell = 10"),
        (SitePolicy(min_cell=0, accepted_methods=("scaffold",)), "the method 'fedavg', only scaf"),
        (SitePolicy(min_cell=0, max_message_bytes=10), "policy allows 10;"),
    ],
)
def test_a_policy_that_forbids_everything_is_an_error(policy: SitePolicy, complaint: str):
    with pytest.raises(UserError, match=complaint):
        leaving(FedAvg(), policy)
