"""How much disk clients' states will take: by hand for a few clients, and said before a run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.tiny_runs import tiny_settings

from fedquilt.recipes.recipe import recipe_from
from fedquilt.runs import disk_need
from fedquilt.runs.disk_need import StatesNeed, said
from fedquilt.runs.experiment import run
from fedquilt.runs.finished_run import read_run

CLIENTS, ROUNDS = 6, 2


def _begin(tmp_path: Path, **settings: Any) -> list[str]:
    """Run two rounds of SCAFFOLD in cohorts of 2; return the notices before the first round."""
    changes = {"partition": {"name": "iid", "clients": CLIENTS}, "annotation": {"name": "recorded"}}
    recipe = tiny_settings("scaffold", rounds=ROUNDS, cohort_size=2, **changes)
    events: list[tuple[str, str]] = []
    run(
        recipe_from(recipe | settings),
        tmp_path / "run",
        observe=lambda event, facts: events.append((event, str(facts.get("text", "")))),
        engine="sequential",
    )
    before = events[: [event for event, _ in events].index("begin")]
    return [text for event, text in before if event == "notice"]


def test_what_a_small_run_keeps_is_not_worth_saying(tmp_path: Path) -> None:
    assert not any("keep states" in text for text in _begin(tmp_path))


@pytest.mark.parametrize(("numbers", "most"), [("float32", 1.0), ("bfloat16", 0.52)])
def test_the_need_is_said_before_the_first_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: str, most: float
) -> None:
    monkeypatch.setattr(disk_need, "WORTH_SAYING", 1.0)
    needs: list[StatesNeed] = []

    def noted(need: StatesNeed, folder: Path) -> str:
        needs.append(need)
        return said(need, folder)

    monkeypatch.setattr("fedquilt.runs.experiment.said", noted)
    texts = _begin(tmp_path, state_numbers=numbers)
    # 6 x (1 - (4/6)^2) = 3.3 clients are expected to be drawn at least once.
    assert any("about 4 of 6 clients will have one" in text for text in texts)
    model = read_run(tmp_path / "run").models.network(None)
    weights = 4 * sum(each.numel() for each in model.parameters())
    # SCAFFOLD keeps a control variate as large as the trained weights.
    assert 0.5 * weights < needs[0].each < most * weights + 1000


def test_the_words_say_what_helps_where_the_disk_is_too_small(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(free=5e9)
    monkeypatch.setattr("shutil.disk_usage", lambda path: free)
    need = StatesNeed(each=45_000_000, visited=2000, clients=51_414, is_halved=False)
    assert said(need, tmp_path / "not" / "yet") == (
        "clients keep states of 45.0 MB; about 2,000 of 51,414 clients will have one, which takes "
        "up to 180.0 GB in the run folder, where 5.0 GB are free; state_numbers = 'bfloat16' takes "
        "about half"
    )
