"""SiteStates: returns the newest state before a round, also after restarts and damage."""

from __future__ import annotations

from pathlib import Path

import torch

from fedquilt.deploy.site.states import KEPT, SiteStates


def _state(number: float) -> dict[str, torch.Tensor]:
    return {"control": torch.tensor([number])}


def test_a_repeated_round_starts_from_the_state_before_it(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    assert states.before(0) == {}
    for round_index in range(3):
        states.keep(round_index, _state(round_index))
    again = SiteStates(tmp_path)  # another process, after a restart
    assert again.before(3) == _state(2)
    assert again.before(2) == _state(1)  # the server lost round 2 and repeats it
    again.keep(2, _state(20))
    assert again.before(3) == _state(20)


def test_missed_rounds_leave_the_last_state(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    states.keep(1, _state(1))
    assert states.before(7) == _state(1)
    assert states.before(1) == {}


def test_states_of_later_rounds_are_deleted(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    for round_index in range(4):
        states.keep(round_index, _state(round_index))
    states.keep(1, _state(10))
    assert states.before(9) == _state(10)


def test_only_a_few_are_kept(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    for round_index in range(20):
        states.keep(round_index, _state(round_index))
    assert len(list(tmp_path.glob("after-*.json"))) == KEPT
    assert len(list((tmp_path / "objects").iterdir())) == KEPT


def test_a_damaged_state_is_skipped(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    states.keep(0, _state(0))
    states.keep(1, _state(1))
    newest = max(tmp_path.glob("after-*.json"))
    newest.write_text(newest.read_text()[:20])
    assert SiteStates(tmp_path).before(2) == _state(0)
