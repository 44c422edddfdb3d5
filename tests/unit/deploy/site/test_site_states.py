"""SiteStates: returns the newest state before a round, also after restarts and damage."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedquilt.deploy.site.states import KEPT, DamagedState, SiteStates


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


def _damage(path: Path) -> None:
    """Flip the last bit: the size stays the same."""
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("file", ["after-000002.json", "objects"])
def test_a_damaged_state_stops_the_site(tmp_path: Path, file: str) -> None:
    states = SiteStates(tmp_path)
    states.keep(0, _state(0))
    before = set((tmp_path / "objects").iterdir())
    states.keep(1, _state(1))
    if file == "objects":
        (damaged,) = set((tmp_path / "objects").iterdir()) - before
        _damage(damaged)
    else:
        newest = tmp_path / file
        newest.write_text(newest.read_text()[:20])
    again = SiteStates(tmp_path)
    with pytest.raises(DamagedState, match=r"kept after round 2 is damaged.*after-000002\.json"):
        again.before(2)
    assert again.before(1) == _state(0)  # a round of before is not affected
    (tmp_path / "after-000002.json").unlink()  # what the error advises
    assert again.before(2) == _state(0)


def test_a_single_damaged_state_does_not_become_an_empty_one(tmp_path: Path) -> None:
    SiteStates(tmp_path).keep(0, _state(3))
    (object_file,) = (tmp_path / "objects").iterdir()
    _damage(object_file)
    with pytest.raises(DamagedState):
        SiteStates(tmp_path).before(1)


def test_only_tensors_count_as_kept(tmp_path: Path) -> None:
    states = SiteStates(tmp_path)
    assert states.is_empty()
    states.keep(0, {"method": {}})
    assert states.is_empty()
    states.keep(1, _state(1))
    assert not states.is_empty()
