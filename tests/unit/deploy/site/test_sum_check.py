"""What `fedquilt site check` says of sums: how parts leave, who may be lost, and all keys."""

from __future__ import annotations

import hashlib

from support.remote_sites import OPEN, make_study
from support.secure_study import public_key, secure_study
from support.tiny_federation import make_method

from fedquilt.deploy.site.sum_check import SumCheck, check_sums
from fedquilt.deploy.study import Study
from fedquilt.privacy.site_policy import SitePolicy

METHOD = make_method("fedavg-pl")


def checked(study: Study, policy: SitePolicy = OPEN) -> SumCheck:
    return check_sums(study, "site-0", policy)


def test_every_part_leaves_masked_with_its_range_and_bits() -> None:
    """Four sites of 21 images, values up to 16: sums below 4 * 21 * 16 < 2^11, so 62 - 11 bits."""
    found = checked(secure_study(METHOD))
    assert found.lines[0] == "how it leaves: masked; the server reads the sum over sites only"
    assert found.leaves_as["body"] == "masked, up to 16, 51 bits of fraction"
    assert found.leaves_as["head"] == "masked, up to 16, 51 bits of fraction"
    assert found.leaves_as["annotators"] == "masked, up to 21, 55 bits of fraction"
    assert found.refused is None
    ring = checked(make_study(METHOD, images=21, recipe={"summation": "ring"}))
    assert ring.leaves_as["body"] == "integers, up to 16, 52 bits of fraction"  # of three sites
    assert checked(make_study(METHOD)).otherwise == "plain"


def test_who_may_be_lost_and_the_keys_of_all_others() -> None:
    """Of four sites 8 / 3, so three, are needed."""
    found = checked(secure_study(METHOD))
    assert "a sum counts with 3 of 4 sites; 1 may be lost in a round" in found.lines
    for number in (1, 2, 3):
        digest = hashlib.sha256(public_key(f"site-{number}").encode()).hexdigest()
        (line,) = (each for each in found.lines if each.startswith(f"key of site-{number}"))
        assert line.split(": ")[1].replace(" ", "") == digest[:40]
    assert not any("key of site-0" in each for each in found.lines)


def test_classes_of_few_annotators_are_named_with_what_happens() -> None:
    annotated = ((0, 1), (1, 2), (2, 0), (1, 2))  # two annotate the first class, "round"
    study = secure_study(METHOD, annotated=annotated, further={"few_annotators": "reveal"})
    (line,) = (each for each in checked(study).lines if each.startswith("fewer than 3"))
    assert "annotate round: the server learns single sites' numbers about them" in line
    strict = checked(secure_study(METHOD), SitePolicy(min_contributors=4))
    (line,) = (each for each in strict.lines if each.startswith("fewer than 4"))
    assert "this site will refuse every sum (policy.min_contributors)" in line


def test_a_policy_that_asks_for_masks_refuses_sums_in_the_clear() -> None:
    policy = SitePolicy(summation="secure")
    for study in (
        make_study(METHOD),
        make_study(METHOD, images=21, recipe={"summation": "ring"}),
    ):
        found = checked(study, policy)
        assert found.refused is not None
        assert f"refused: {found.refused}" in found.lines
    assert checked(secure_study(METHOD), policy).refused is None
