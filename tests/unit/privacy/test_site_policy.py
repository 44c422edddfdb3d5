"""A site's policy: read strictly, tightened by a study, and named when it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.few_patients import site
from torch import tensor

from fedquilt.core.errors import UserError
from fedquilt.core.payload import Mean, Sum
from fedquilt.deploy.site.settings import read_site_settings
from fedquilt.methods.fedalc import FedALC
from fedquilt.methods.fedavg import FedAvg
from fedquilt.methods.fedirm import FedIRM
from fedquilt.methods.fedmlp import FedMLP
from fedquilt.privacy.site_policy import SitePolicy, method_name

FILES = "[data]\nfolder = 'images'\nlabels = 'labels.csv'\n"


def test_defaults_are_a_floor_of_ten_and_no_other_rule():
    policy = SitePolicy()
    assert policy.min_cell == 10
    assert policy == SitePolicy(
        min_cell=10, max_message_bytes=None, accepted_methods=None, may_leave=None
    )


def test_the_stricter_of_both_holds_in_either_order():
    site_ = SitePolicy(min_cell=20, max_message_bytes=100, accepted_methods=("fedavg", "fedmlp"))
    study = SitePolicy(
        min_cell=5,
        max_message_bytes=1000,
        accepted_methods=("fedmlp", "scaffold"),
        may_leave=("body",),
    )
    expected = SitePolicy(
        min_cell=20, max_message_bytes=100, accepted_methods=("fedmlp",), may_leave=("body",)
    )
    assert site_.tightened(study) == expected
    assert study.tightened(site_) == expected


def test_nothing_in_common_allows_nothing():
    one, two = SitePolicy(may_leave=("body",)), SitePolicy(may_leave=("head",))
    assert one.tightened(two).may_leave == ()


def test_methods_must_be_accepted():
    policy = SitePolicy(accepted_methods=("fedavg", "scaffold"))
    policy.check(FedAvg(), {})
    with pytest.raises(UserError, match="does not accept the method 'fedmlp', only fedavg, scaff"):
        policy.check(FedMLP(), {})
    assert method_name(FedMLP()) == "fedmlp"


def test_parts_must_be_allowed():
    policy = SitePolicy(may_leave=("body", "head", "annotators"))
    policy.check(FedMLP(), {"body": Sum(torch.zeros(2))})
    with pytest.raises(UserError, match="does not let part 'prototypes' leave, only body, head"):
        policy.check(FedMLP(), {"body": Sum(torch.zeros(2)), "prototypes": Sum(torch.zeros(2))})
    without_codes = SitePolicy(min_cell=0, may_leave=("annotators", "owned"))
    answer = FedALC().survey(site())
    with pytest.raises(UserError, match="'codes'"):
        without_codes.on_survey(FedALC(), site(), answer)


def test_messages_have_a_maximum_size():
    """3 float32 numbers have 12 bytes; 2 and a float64 weight, 16."""
    update = {"body": Mean(torch.zeros(2), 1.0), "head": Sum(torch.zeros(3))}
    SitePolicy(max_message_bytes=28).check(FedAvg(), update)
    with pytest.raises(UserError, match=r"has 28 bytes, most of them in part 'body'.*allows 27"):
        SitePolicy(max_message_bytes=27).check(FedAvg(), update)


def test_the_floor_comes_first():
    sent = {"relation": Mean(torch.ones(3, 3), tensor([5.0, 1.0, 0.0]))}
    left = SitePolicy(min_cell=3).on_client(FedIRM(), site(), {}, sent)["relation"]
    assert isinstance(left, Mean)
    assert left.weight.tolist() == [5.0, 0.0, 0.0]  # type: ignore[union-attr]


def test_a_policy_from_a_file(tmp_path: Path):
    path = tmp_path / "site.toml"
    path.write_text('[policy]\nmin_cell = 25\nmay_leave = ["body"]\n' + FILES)
    assert read_site_settings(path).policy == SitePolicy(min_cell=25, may_leave=("body",))
    path.write_text(FILES)
    assert read_site_settings(path).policy == SitePolicy()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[policy]\nmin_cells = 5", "policy has no field 'min_cells'; did you mean 'min_cell'"),
        ('[policy]\nmin_cell = "5"', "policy.min_cell must be int, found '5'"),
        ("[policy]\nmin_cell = -1", "min_cell must be 0 or more, found -1"),
        ("[policy]\nmax_message_bytes = 0", "max_message_bytes must be positive, found 0"),
        (
            '[policy]\naccepted_methods = ["fedmpl"]',
            "'fedmpl', which is not a method; did you mean",
        ),
    ],
)
def test_an_invalid_policy_is_refused(text: str, complaint: str, tmp_path: Path):
    path = tmp_path / "site.toml"
    path.write_text(f"{text}\n{FILES}")
    with pytest.raises(UserError, match=complaint):
        read_site_settings(path)
