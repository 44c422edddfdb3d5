"""``fedquilt site check`` with a sealed kit; a contract test checks it for every method."""

from __future__ import annotations

from running_study import RunningStudy


def test_a_site_sees_what_would_leave_before_it_joins(consortium: RunningStudy) -> None:
    checked = consortium.start("check", "site", "check", *consortium.files_of("client-1"))
    assert checked.wait(90) == 0, consortium.said("check")
    said = consortium.said("check")
    assert "client-1 in digits: 30 images to train on" in said
    assert "What would leave client-1" in said
    for part in ("annotators", "body", "head", "training_loss"):
        assert part in said
