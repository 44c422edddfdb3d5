"""The status of a study: who is missing since when, and how far it is."""

from __future__ import annotations

from typing import Any

from remote_sites import make_study
from tiny_federation import make_method

from fedquilt.deploy.status import Outcome, Status, sentences


def _record(number: int, ended: float, **missing: str) -> dict[str, Any]:
    return {
        "round": number,
        "loss": 0.5,
        "seconds": 2.0,
        "metrics": {"macro_auc": 0.75, "map": None},
        "bytes_down": 100,
        "bytes_up": 50,
        "missing": {name.replace("_", "-"): why for name, why in missing.items()},
        "ended": ended,
    }


def test_a_site_is_missing_since_the_first_round_without_it() -> None:
    status = Status()
    status.begin(make_study(make_method("fedavg")), ["site-0", "site-1", "site-2"])
    status.note(_record(1, 10.0))
    status.note(_record(2, 20.0, site_1="no answer in time"))
    status.note(_record(3, 30.0, site_1="lost connection"))
    facts = status.to_dict()
    assert facts["missing_since"] == {"site-1": 20.0}
    assert facts["missing"] == {"site-1": "lost connection"}
    assert (facts["round"], facts["bytes_down"], facts["bytes_up"]) == (3, 300, 150)
    status.note(_record(4, 40.0))
    assert status.to_dict()["missing_since"] == {}


def test_words_for_a_terminal() -> None:
    status = Status()
    status.begin(make_study(make_method("fedavg")), ["site-0"])
    status.note({"notice": "going on after round 1", "round": 1})
    status.note(_record(2, 20.0, site_1="no answer in time"))
    status.end(Outcome.TOO_FEW, "round 3: too few")
    said = "\n".join(sentences(status.to_dict()))
    assert "study tiny: too few sites, round 2 of 3" in said
    assert "because: round 3: too few" in said
    assert "missing: site-1 since " in said
    assert "(no answer in time)" in said
    assert "metrics: macro_auc 0.7500" in said
    assert "100 bytes to the sites, 50 bytes from them" in said
