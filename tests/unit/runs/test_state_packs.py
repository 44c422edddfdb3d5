"""Packed states: a save costs what changed, old folders go on, processes share a folder."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import pytest
import torch
from torch import tensor

from fedquilt.core.tree import same_bits
from fedquilt.runs import state_packs
from fedquilt.runs.checkpoint import Checkpoints
from fedquilt.runs.object_store import ObjectStore
from fedquilt.runs.state_packs import StatePacks


def state(number: float) -> dict[str, Any]:
    return {"method": {"c": torch.full((50,), float(number))}}


def many(folder: Path, count: int) -> Checkpoints:
    folder.mkdir(exist_ok=True)
    checkpoints = Checkpoints(folder)
    for number in range(count):
        checkpoints.put(f"client-{number}", state(number))
    checkpoints.advance(1, {"w": tensor([1.0])})
    checkpoints.save()
    return checkpoints


def bytes_of(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("count", [20, 400])
def test_a_save_writes_and_syncs_only_what_changed(tmp_path, monkeypatch, count):
    checkpoints = many(tmp_path / "run", count)
    before = bytes_of(tmp_path / "run")
    synced: list[str] = []
    monkeypatch.setattr(state_packs, "wait_for_disk", lambda path: synced.append(path.name))
    for number in range(3):
        checkpoints.put(f"client-{number}", state(-1 - number))
    checkpoints.advance(2, {"w": tensor([2.0])})
    checkpoints.save()
    new = {name: size for name, size in bytes_of(tmp_path / "run").items() if name not in before}
    assert synced == ["states-000002-0.pack", "run"]
    assert len(new) == 3  # the pack, the server and the checkpoint, for any number of clients
    one = len(state_packs.packed(state(0)))
    assert 3 * one < new["states-000002-0.pack"] < 3 * one + 600  # and its index
    assert new["round-000002.json"] < 600


def test_what_is_left_in_a_sparse_pack_moves_and_the_file_goes(tmp_path):
    checkpoints = many(tmp_path, 10)
    for round_count in range(2, 6):  # of 10 states in the first pack 7 change
        for number in range(7):
            checkpoints.put(f"client-{number}", state(100 * round_count + number))
        checkpoints.advance(round_count, {"w": tensor([float(round_count)])})
        checkpoints.save()
    names = {path.name for path in tmp_path.glob("states-*.pack")}
    assert "states-000001-0.pack" not in names
    assert len(names) <= 3
    restored = Checkpoints(tmp_path)
    restored.restore()
    for number in range(10):
        expected = state(500 + number) if number < 7 else state(number)
        assert same_bits(restored.get(f"client-{number}"), expected)


def test_a_state_that_did_not_change_is_not_written_again(tmp_path):
    checkpoints = many(tmp_path, 5)
    for number in range(5):
        checkpoints.put(f"client-{number}", state(number))
    checkpoints.advance(2, {"w": tensor([2.0])})
    checkpoints.save()
    assert [path.name for path in tmp_path.glob("states-*.pack")] == ["states-000001-0.pack"]


def test_a_state_may_become_empty(tmp_path):
    checkpoints = many(tmp_path, 2)
    checkpoints.put("client-0", {})
    checkpoints.advance(2, {"w": tensor([2.0])})
    checkpoints.save()
    restored = Checkpoints(tmp_path)
    restored.restore()
    assert restored.get("client-0") == {}
    assert same_bits(restored.get("client-1"), state(1))


def write_first_format(folder: Path, round_count: int) -> None:
    """Write a checkpoint as version 1 of the format had it: a file for each state."""
    objects = ObjectStore(folder / "objects")
    content = {
        "format": 1,
        "round_count": round_count,
        "server": objects.put({"w": tensor([float(round_count)])}),
        "clients": {f"client-{n}": objects.put(state(n)) for n in range(4)},
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    path = folder / f"round-{round_count:06d}.json"
    path.write_text(json.dumps(content | {"digest": digest}))


def test_a_folder_of_the_first_format_goes_on(tmp_path):
    write_first_format(tmp_path, 7)
    checkpoints = Checkpoints(tmp_path)
    saved, complaints = checkpoints.restore()
    assert (saved is not None and saved.round_count, complaints) == (7, [])
    for round_count in (8, 9):
        checkpoints.put("client-0", state(10 * round_count))
        checkpoints.advance(round_count, {"w": tensor([float(round_count)])})
        checkpoints.save()
    assert len(list((tmp_path / "objects").iterdir())) == 2  # the servers of two checkpoints
    restored = Checkpoints(tmp_path)
    assert restored.restore()[1] == []
    assert same_bits(restored.get("client-0"), state(90))
    assert same_bits(restored.get("client-3"), state(3))


def test_a_damaged_state_of_the_first_format_is_noticed(tmp_path):
    write_first_format(tmp_path, 7)
    for path in (tmp_path / "objects").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    saved, (complaint,) = Checkpoints(tmp_path).restore()
    assert saved is None
    assert "was cut short or altered" in complaint


class Exchange:
    """What two threads tell each other in turn, as two processes would."""

    def __init__(self) -> None:
        self._boxes: list[SimpleQueue[Any]] = [SimpleQueue(), SimpleQueue()]

    def share(self, process: int) -> state_packs.Share:
        def share(found: Any) -> list[Any]:
            text = json.dumps(found)
            self._boxes[1 - process].put(text)
            pair = [found, json.loads(self._boxes[process].get(timeout=20))]
            return pair if process == 0 else pair[::-1]

        return share


def test_processes_share_a_folder_and_each_knows_all_states(tmp_path):
    exchange = Exchange()
    pairs = [
        StatePacks(tmp_path, ObjectStore(tmp_path / "o"), process=n, share=exchange.share(n))
        for n in (0, 1)
    ]
    saved: list[Any] = [None, None]

    def save(process: int) -> None:
        saved[process] = pairs[process].save()

    for round_count in (1, 2, 3):
        pairs[0].put("even", state(round_count))
        pairs[1].put("odd", state(10 * round_count))
        if round_count == 1:
            pairs[1].put("rare", state(7))
        threads = [Thread(target=save, args=(n,)) for n in (0, 1)]
        for pack in pairs:
            pack.advance(round_count)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert saved[0] == saved[1]
        for pack in pairs:
            assert same_bits(pack.get("even"), state(round_count))
            assert same_bits(pack.get("odd"), state(10 * round_count))
            assert same_bits(pack.get("rare"), state(7))
    alone = StatePacks(tmp_path, ObjectStore(tmp_path / "o"))
    alone.restore(saved[0], {})  # a single process goes on from what two have written
    assert same_bits(alone.get("odd"), state(30))
    assert same_bits(alone.get("rare"), state(7))
    alone.put("odd", state(40))
    alone.advance(4)
    later = alone.save()
    again = StatePacks(tmp_path, ObjectStore(tmp_path / "o"))
    again.restore(later, {})
    assert same_bits(again.get("odd"), state(40))
    assert same_bits(again.get("even"), state(3))
